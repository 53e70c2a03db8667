"""The metrics in the terminal: one column for each run, as many side by side as fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from analysis.metrics import RunMetrics
from analysis.tables.rows_of_metrics import MetricRow, metric_rows
from analysis.tables.table_fitting import column_width, fitting, run_table

INDENT = "  "
BESIDE, BELOW = " | ", "\n"
TITLES = {BESIDE: "metric, real | simulated", BELOW: "metric, real above simulated"}


def metrics_tables(
    runs: Sequence[RunMetrics], width: int, *, short: bool = False, simulated: Sequence[RunMetrics] = ()
) -> Iterator[Table]:
    """Yield Rich tables of the metrics, one if it fits; where runs differ the best value is bold.

    Parameters
    ----------
    runs
        At least one run.
    width
        Of the terminal, in characters.
    short
        Leave the details out, for a terminal.
    simulated
        A simulation of each run, to stand beside it, or below it where that does not fit; empty for none.
    """
    beside = {(row.group, row.name): row.cells for row in metric_rows(simulated)} if simulated else {}
    none = ("",) * len(runs)
    rows = [
        (row, beside.get((row.group, row.name), none))
        for row in metric_rows(runs)
        if not (short and row.detail)
    ]
    names = max(len(INDENT + row.name) for row, _ in rows)
    for between in (BESIDE, BELOW):
        widths = [
            column_width(run.label, [row.cells[at] + _after(others[at], between) for row, others in rows])
            for at, run in enumerate(runs)
        ]
        parts = list(fitting(width, names, widths))
        if not beside or len(parts) == 1:
            break
    for part in parts:
        table = run_table(TITLES[between] if beside else "metric", [runs[at].label for at in part])
        _fill(table, rows, part, between)
        yield table


def _fill(table: Table, rows: Sequence[tuple[MetricRow, Sequence[str]]], part: range, between: str) -> None:
    group = None
    for row, others in rows:
        if row.group != group:
            if group is not None:
                table.add_section()
            table.add_row(Text(row.group, style="bold"), *("" for _ in part))
            group = row.group
        cells = (
            Text.assemble((row.cells[at], "bold green" if row.best[at] else ""), _after(others[at], between))
            for at in part
        )
        table.add_row(Text(INDENT + row.name), *cells)


def _after(other: str, between: str) -> str:
    return f"{between}{other}" if other else ""
