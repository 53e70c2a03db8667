"""``osub compare``: runs of the same trace side by side, and job by job against the first of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from analysis.comparison import compared, error_tables, job_table
from analysis.metrics import BETA_S, MOST_SPREAD, MOST_TAKEN, WAIT_THRESHOLD_S, MetricOptions
from analysis.tables import metrics_tables
from analysis.verdict.verdict_in_terminal import gain_table, verdict_lines
from foundation.records import load_run
from foundation.units import counted
from osub.cli.out_file import Force, check_apart, check_free
from osub.cli.report import Beta, Full, MostSpread, MostTaken, Page, WaitThreshold
from osub.cli.terminal import Console, echo_json, waiting


def compare(
    runs: Annotated[
        list[Path],
        Argument(help="RUN folders, real or simulated; the first is the reference.", metavar="RUN RUN..."),
    ],
    html: Page = None,
    csv: Annotated[
        Path | None,
        Option(help="Write all jobs of the reference and of the last run.", metavar="FILE", dir_okay=False),
    ] = None,
    jobs: Annotated[int, Option(min=0, help="Print so many jobs of each comparison.")] = 15,
    least_run: Annotated[
        float,
        Option(min=0, help="Leave jobs that ran shorter in the reference, in seconds, out of the errors."),
    ] = 0.0,
    as_json: Annotated[bool, Option("--json", help="Print metrics and errors as JSON.")] = False,
    full: Full = False,
    force: Force = False,
    wait_threshold: WaitThreshold = WAIT_THRESHOLD_S,
    beta: Beta = BETA_S,
    most_taken: MostTaken = MOST_TAKEN,
    most_spread: MostSpread = MOST_SPREAD,
) -> None:
    """Compare any mix of real and simulated RUNs: a verdict, metrics, and jobs one by one.

    A simulation's differences from its real run are errors; two settings have gains and losses.
    """
    check_free(html, force, makes_folder=True)
    check_free(csv, force)
    check_apart(html, csv)
    options = MetricOptions(
        wait_threshold_s=wait_threshold, beta_s=beta, most_taken=most_taken, most_spread=most_spread
    )
    with waiting(f"comparing {counted(len(runs), 'run')}"):
        found = compared([load_run(path) for path in runs], least_run, options)
        metrics = found.metrics(options) if html is None else found.write_page(html, options)
    if csv is not None:
        found.write_csv(csv)
    if as_json:
        answer = {"verdict": found.verdict, "metrics": metrics, "errors": found.differences}
        echo_json(answer)
        return
    console = Console()
    for line in verdict_lines(found.verdict):
        console.print(line)
    for table in metrics_tables(metrics, console.width, short=not full):
        console.print(table)
    for table in error_tables(found.errors, console.width) if found.errors else ():
        console.print(table)
    if jobs:
        for two in found.settings:
            console.print(gain_table(*two, jobs))
        for two in found.forecasts:
            console.print(job_table(*two, console.width, jobs))
    if html is not None:
        console.say(f"Page: {html}")
