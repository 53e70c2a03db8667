"""``osub report``: one or several RUNs as a table in the terminal and as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from analysis.metrics import (
    BETA_S,
    MOST_SPREAD,
    MOST_TAKEN,
    WAIT_THRESHOLD_S,
    MetricOptions,
    measure,
    metrics_csv,
)
from analysis.tables import distinctly_labelled, metrics_tables
from analysis.verdict import verdict_of
from analysis.verdict.verdict_in_terminal import verdict_lines
from foundation.files import write_whole
from foundation.records import load_run
from foundation.units import counted
from osub.cli.out_file import Force, check_apart, check_free
from osub.cli.terminal import Console, echo_json, waiting

Page = Annotated[
    Path | None,
    Option("--html", help="Write a page that is complete in itself.", metavar="FILE", dir_okay=False),
]
Full = Annotated[bool, Option("--full", help="Print every metric, not the main ones.")]
WaitThreshold = Annotated[
    float, Option(min=0, help="A job that waits longer, in seconds, counts as one that waited.")
]
Beta = Annotated[float, Option(min=0, help="Least dedicated time in the bounded slowdown, in seconds.")]
MostTaken = Annotated[
    float,
    Option(
        metavar="SHARE",
        min=0,
        max=1,
        help="Share of the CPUs' time that others and the hypervisor may take, before a run is unfit.",
    ),
]
MostSpread = Annotated[
    float,
    Option(
        metavar="FACTOR",
        min=1,
        help="How many times as fast a host may be for some jobs of M=1 as for others.",
    ),
]


def report(
    runs: Annotated[list[Path], Argument(help="RUN folders, real or simulated.", metavar="RUN...")],
    html: Page = None,
    csv: Annotated[
        Path | None,
        Option(help="Write the metrics, a row a figure and a column a run.", metavar="FILE", dir_okay=False),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the metrics as JSON.")] = False,
    full: Full = False,
    force: Force = False,
    wait_threshold: WaitThreshold = WAIT_THRESHOLD_S,
    beta: Beta = BETA_S,
    most_taken: MostTaken = MOST_TAKEN,
    most_spread: MostSpread = MOST_SPREAD,
) -> None:
    """Draw RUNs side by side on one page, and print their metrics.

    Thresholds are in the runs' own, possibly compressed, seconds.
    """
    check_free(html, force, makes_folder=True)
    check_free(csv, force)
    check_apart(html, csv)
    options = MetricOptions(
        wait_threshold_s=wait_threshold, beta_s=beta, most_taken=most_taken, most_spread=most_spread
    )
    with waiting(f"reading {counted(len(runs), 'run')}"):
        loaded = distinctly_labelled([load_run(path) for path in runs])
        if html is None:
            metrics = [measure(run, options) for run in loaded]
        else:
            # The chart library is slow to import, and a table needs none of it.
            from analysis.report import write_report

            metrics = write_report(loaded, html, options)
    if csv is not None:
        write_whole(csv, metrics_csv(metrics))
    if as_json:
        echo_json(metrics)
        return
    console = Console()
    for line in verdict_lines(verdict_of(loaded, options)):
        console.print(line)
    for table in metrics_tables(metrics, console.width, short=not full):
        console.print(table)
    for run in metrics:
        for note in run.notes:
            if run.unfit is not None and run.unfit in note:
                continue  # the first line says so
            console.say(f"{run.label}: {note}")
    if html is not None:
        console.say(
            f"Report: {html} ({html.stat().st_size / 1e6:.1f} MB); any browser shows it, without a network.",
            soft_wrap=True,
        )
