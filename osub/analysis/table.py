"""The metrics in the terminal: one column for each run."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from osub.analysis.metrics import RunMetrics
from osub.analysis.rows import metric_rows


def metrics_table(
    runs: Sequence[RunMetrics], *, short: bool = False, simulated: Sequence[RunMetrics] = ()
) -> Table:
    """Return a Rich table of the metrics; where runs differ the best value is bold.

    Parameters
    ----------
    runs
        At least one run.
    short
        Leave the details out, for a terminal.
    simulated
        A simulation of each run, to stand beside it; empty for none.
    """
    table = Table(title_justify="left", header_style="bold", pad_edge=False)
    table.add_column("metric, real | simulated" if simulated else "metric", no_wrap=True)
    for run in runs:
        table.add_column(Text(run.label), justify="right", overflow="fold")
    group = None
    beside = {(row.group, row.name): row.cells for row in metric_rows(simulated)} if simulated else {}
    for row in metric_rows(runs):
        if short and row.detail:
            continue
        if row.group != group:
            if group is not None:
                table.add_section()
            table.add_row(Text(row.group, style="bold"), *("" for _ in runs))
            group = row.group
        others = beside.get((row.group, row.name), ("",) * len(row.cells))
        cells = (
            Text.assemble((cell, "bold green" if best else ""), f" | {other}" if other else "")
            for cell, best, other in zip(row.cells, row.best, others, strict=True)
        )
        table.add_row(Text(f"  {row.name}"), *cells)
    return table
