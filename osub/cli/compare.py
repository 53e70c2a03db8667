"""``osub compare``: runs of the same trace side by side, and job by job against the first of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from osub.analysis.comparison import error_tables, job_table, pairs
from osub.analysis.derived import BETA_S, WAIT_THRESHOLD_S, MetricOptions
from osub.analysis.job_by_job import pair, run_errors
from osub.analysis.labels import told_apart
from osub.analysis.metrics import measure
from osub.analysis.table import metrics_tables
from osub.cli.metric_options import Beta, Full, Page, WaitThreshold
from osub.cli.terminal import Console
from osub.errors import OutputError, UsageError
from osub.records import load_run


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="RUN folders, real or simulated; the first is the reference.", metavar="RUN RUN..."
        ),
    ],
    html: Page = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            help="Write all jobs of the reference and of the last run.",
            metavar="FILE",
            dir_okay=False,
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Print so many jobs of each comparison.")] = 15,
    least_run: Annotated[
        float,
        typer.Option(
            min=0, help="Leave jobs that ran shorter in the reference, in seconds, out of the errors."
        ),
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print metrics and errors as JSON.")] = False,
    full: Full = False,
    wait_threshold: WaitThreshold = WAIT_THRESHOLD_S,
    beta: Beta = BETA_S,
) -> None:
    """Compare any mix of real and simulated RUNs: metrics, and per job where and when it ran.

    Errors are those of the other runs against the first.
    """
    if len(runs) < 2:
        raise UsageError("osub compare takes at least two RUNs; `osub report` draws a single one")
    options = MetricOptions(wait_threshold_s=wait_threshold, beta_s=beta)
    loaded = told_apart([load_run(path) for path in runs])
    errors = [run_errors(reference, other, least_run) for reference, other in pairs(loaded)]
    if not any(one.jobs for one in errors):
        raise UsageError("these runs have no job in common: are they of the same trace?")
    if html is None:
        metrics = [measure(run, options) for run in loaded]
    else:
        # The chart library is slow to import, and tables need none of it.
        from osub.analysis.comparison_page import comparison_section
        from osub.analysis.report import write_report

        metrics = write_report(loaded, html, options, [comparison_section(list(pairs(loaded)), errors)])
    if csv is not None:
        try:
            pair(loaded[0], loaded[-1]).write_csv(csv)
        except OSError as error:
            raise OutputError(f"cannot write {csv}: {error.strerror or error}") from error
    if as_json:
        text = msgspec.json.encode({"metrics": metrics, "errors": errors})
        typer.echo(msgspec.json.format(text, indent=2).decode())
        return
    console = Console()
    for table in (
        *metrics_tables(metrics, console.width, short=not full),
        *error_tables(errors, console.width),
    ):
        console.print(table)
    if jobs:
        for reference, other in pairs(loaded):
            console.print(job_table(reference, other, console.width, jobs))
    if html is not None:
        console.print(f"Page: {html}", markup=False, highlight=False)
