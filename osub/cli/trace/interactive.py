"""``osub trace interactive``: busy and idle periods for a trace's interactive jobs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import UsageError
from foundation.units import counted, counted_of, verb
from osub.cli.terminal import Console
from osub.cli.trace.files import (
    AsJson,
    Force,
    Lenient,
    OutFile,
    Seed,
    TraceFile,
    check_free,
    deliver,
    load,
    print_json,
    working,
)
from osub.cli.trace.tables import behaviour_table
from workloads.behaviour.behaviour_figures import PUBLISHED, behaviour_statistics
from workloads.behaviour.period_model import THRESHOLD_CORES
from workloads.behaviour.recording_library import NEAREST, EmbedReport, embed_recordings, read_library
from workloads.trace.models import MOST_CORES, MOST_RUN_S, embed_patterns, interactive_flags, make_interactive


def interactive(
    trace: TraceFile,
    out: OutFile,
    patterns: Annotated[
        Path | None,
        typer.Option(
            help="Folder of recorded patterns (*.csv, *.swf); without it they are drawn to match the "
            "published statistics.",
            metavar="DIR",
        ),
    ] = None,
    nearest: Annotated[
        int, typer.Option(min=1, help="Recordings of nearest length among which one is drawn.")
    ] = NEAREST,
    threshold: Annotated[
        float, typer.Option(min=0, help="Cores above which a sample of a recording is busy.")
    ] = THRESHOLD_CORES,
    jobs: Annotated[
        int | None, typer.Option(min=0, help="Interactive jobs wanted: random small batch jobs become some.")
    ] = None,
    most_cores: Annotated[int, typer.Option(min=1, help="Of a batch job that may.")] = MOST_CORES,
    most_run: Annotated[float, typer.Option(min=0, help="Seconds, which it must be under.")] = MOST_RUN_S,
    interactive_queue: Annotated[int, typer.Option(min=0, help="SWF queue of interactive jobs.")] = 0,
    seed: Seed = 1,
    force: Force = False,
    lenient: Lenient = False,
    as_json: AsJson = False,
) -> None:
    """Embed busy and idle periods in the interactive jobs of TRACE, after making more of them if asked.

    Jobs that have periods keep them. Every embedded pattern fills its job's run time exactly.
    """
    check_free(out, force)
    library = None if patterns is None else read_library(patterns, threshold)
    original = load(trace, lenient)
    queue = interactive_queue
    if jobs is None and not any(interactive_flags(original, queue)):
        raise UsageError(
            f"{original.name} names no interactive jobs in queue {queue}: give --jobs to make some, or "
            "--interactive-queue"
        )
    changed = (
        original if jobs is None else make_interactive(original, jobs, seed, queue, most_cores, most_run)
    )
    made = sum(job.queue == queue for job in changed.jobs) - sum(interactive_flags(original, queue))
    report: EmbedReport | None = None
    with working("embedding periods"):
        if library is None:
            result = embed_patterns(changed, queue, seed)
        else:
            result, report = embed_recordings(changed, library.recordings, queue, seed, nearest)
        found = behaviour_statistics(
            [pattern for job in result.jobs if job.queue == queue and (pattern := job.pattern) is not None]
        )
    deliver(result, out)
    sessions = sum(job.queue == queue for job in result.jobs)
    if as_json:
        print_json(
            {
                "trace": str(out),
                "jobs": len(result.jobs),
                "interactive_jobs": sessions,
                "made_interactive": made,
                "recordings": None if library is None else len(library.recordings),
                "recordings_skipped": [] if library is None else list(library.skipped),
                "embedded": None if report is None else asdict(report),
                "statistics": None if found is None else asdict(found),
                "published": PUBLISHED,
            }
        )
        return
    console = Console()
    for reason in () if library is None else library.skipped:
        console.print(f"Skipped: {reason}", markup=False, highlight=False, soft_wrap=True)
    words = f"{counted_of(sessions, len(result.jobs), 'job')} {verb(sessions)} interactive, {made:,} made so"
    if report is not None and library is not None:
        words += (
            f"; {counted_of(report.recordings_used, len(library.recordings), 'recording')} used, one of them "
            f"at most {counted(report.most_used, 'time')}"
        )
    console.print(words, markup=False, highlight=False, soft_wrap=True)
    if found is not None:
        console.print(behaviour_table(found))
    console.print(f"Trace: {out}", markup=False, highlight=False, soft_wrap=True)
