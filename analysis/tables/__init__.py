"""Metrics as rows of tables, one column a run, for the terminal and for pages."""

from __future__ import annotations

from analysis.tables.rows_of_metrics import ABSENT, HOURS_FROM_S, metric_rows, number
from analysis.tables.run_labels import told_apart
from analysis.tables.table_fitting import FRAME, column_width, fitting, run_table
from analysis.tables.terminal_table import metrics_tables

__all__ = [
    "ABSENT",
    "FRAME",
    "HOURS_FROM_S",
    "column_width",
    "fitting",
    "metric_rows",
    "metrics_tables",
    "number",
    "run_table",
    "told_apart",
]
