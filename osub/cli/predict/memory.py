"""``osub predict memory``: predicted memory peaks of jobs, how good they are, and a table of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from typer import Argument, Option

from foundation.files import write_whole
from foundation.units import counted
from osub.cli.out_file import Force, check_free
from osub.cli.terminal import Console, waiting


def memory(
    log: Annotated[
        Path, Argument(help="sacct's output with ReqMem and MaxRSS, an SWF trace, or a RUN.", metavar="LOG")
    ],
    coverage: Annotated[
        float, Option(help="Share of the jobs whose peak is to be at most as predicted.")
    ] = 0.95,
    out: Annotated[
        Path | None, Option(help="Write the predictions by group to this file.", metavar="MODEL")
    ] = None,
    peaks: Annotated[
        Path | None,
        Option(help="Folder of gangd's record: peaks of jobs of which sacct has none.", metavar="RECORD"),
    ] = None,
    lenient: Annotated[bool, Option("--lenient", help="Pass over malformed lines of the log.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print it as JSON.")] = False,
    force: Force = False,
) -> None:
    """Predict the peak memory of jobs from earlier jobs of their users, and say how good that is."""
    check_free(out, force)
    from gangd.controller.slicelog import read_peaks
    from predictor.memory import PeakHistory, read_memory_log, scores, table_of

    PeakHistory(coverage)  # refuses a coverage before the log is read
    with waiting(f"reading {log.name}"):
        known = None if peaks is None else read_peaks(peaks)
        jobs = read_memory_log(log, strict=not lenient, peaks=known)
        found, history = scores(jobs, coverage)
    table = table_of(history)
    if out is not None:
        write_whole(out, json.dumps(table, indent=1) + "\n")
    if as_json:
        judged = {name: asdict(one) for name, one in found.items()}
        typer.echo(json.dumps({"coverage": coverage, "methods": judged, "groups": len(table["rows"])}))
        return
    shown = Table(
        "memory", "jobs with one", "peaks covered (95% interval)", "loss in MiB", "times what is used"
    )
    for name, one in found.items():
        cells = [name, f"{one.predicted} of {one.jobs}", "-", "-", "-"]
        if one.coverage is not None:
            cells[2:] = [
                f"{one.coverage:.1%} ({one.low:.1%} to {one.high:.1%})",
                f"{one.pinball_mib:.1f}",
                f"{one.times_used:.2f}",
            ]
        shown.add_row(*cells)
    console = Console()
    console.say(
        f"{counted(int(jobs.measured.sum()), 'job')} with a measured peak; the later half, each from jobs "
        f"that had ended before, at a coverage of {coverage:g}:"
    )
    console.print(shown)
    if out is not None:
        console.say(f"{out}: {counted(len(table['rows']), 'group')}")
