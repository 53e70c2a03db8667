"""The metrics in the terminal: one column for each run."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from osub.analysis.metrics import RunMetrics
from osub.analysis.rows import metric_rows


def metrics_table(runs: Sequence[RunMetrics], *, short: bool = False) -> Table:
    """Return a Rich table of the metrics; where runs differ the best value is bold.

    Parameters
    ----------
    runs
        At least one run.
    short
        Leave the details out, for a terminal.
    """
    table = Table(title_justify="left", header_style="bold", pad_edge=False)
    table.add_column("metric", no_wrap=True)
    for run in runs:
        table.add_column(Text(run.label), justify="right", overflow="fold")
    group = None
    for row in metric_rows(runs):
        if short and row.detail:
            continue
        if row.group != group:
            if group is not None:
                table.add_section()
            table.add_row(Text(row.group, style="bold"), *("" for _ in runs))
            group = row.group
        cells = (
            Text(cell, style="bold green" if best else "")
            for cell, best in zip(row.cells, row.best, strict=True)
        )
        table.add_row(Text(f"  {row.name}"), *cells)
    return table
