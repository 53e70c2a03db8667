"""``osub trace interactive|generate|patterns|record-job``: interactive behaviour, recorded or drawn."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from typer import Argument, Option

from foundation.errors import InputError, UsageError
from foundation.interruption import on_signals
from foundation.units import counted, counted_of, verb
from osub.cli.terminal import Console
from osub.cli.trace import files
from osub.cli.trace.files import load
from osub.live.system_named import system_named
from workloads.behaviour import recording_library as recordings
from workloads.behaviour.behaviour_sampler import (
    CgroupUsage,
    TreeUsage,
    Usage,
    job_cgroups,
    record,
    write_as_taken,
)
from workloads.behaviour.pattern_synthesis import AlignedSeries, synthesize
from workloads.behaviour.utilisation_series import SAMPLE_S
from workloads.trace.models import (
    MOST_CORES,
    MOST_RUN_S,
    embed_patterns,
    generate_trace,
    interactive_flags,
    make_interactive,
    offered_load,
)
from workloads.trace.trace_summary import summarize_kinds

MOST_JOBS = 10_000_000


def generate(
    out: files.OutFile,
    jobs: Annotated[int, Option(min=1, max=MOST_JOBS, help="How many.")] = 1000,
    system: Annotated[
        str, Option(help="The machine, such as N12C12; 'host' for the cluster that fits this host.")
    ] = "N12C12",
    load: Annotated[
        float, Option(help="Offered load, 0.7 for 70 %; 0 keeps the model's own gaps.", min=0)
    ] = 0.7,
    interactive_share: Annotated[
        float, Option(min=0, max=1, help="Of the jobs, that are interactive.")
    ] = 0.2,
    interactive_procs: Annotated[
        int | None, Option(min=1, help="Widest interactive job; by default one node.")
    ] = None,
    seed: files.Seed = 1,
    force: files.Force = False,
    as_json: files.AsJson = False,
) -> None:
    """Draw a trace from the model of Lublin and Feitelson, with its daily cycle.

    Interactive jobs (queue 0) have busy and idle periods; batch jobs are in queue 1.
    """
    files.check_free(out, force)
    size = system_named(system)
    with files.working(f"drawing {counted(jobs, 'job')}"):
        trace = generate_trace(
            jobs, size.nodes, size.cores, seed, load or None, interactive_share, interactive_procs
        )
    files.deliver(trace, out)
    kinds = summarize_kinds(trace)
    span_s = trace.jobs[-1].submit_s - trace.jobs[0].submit_s
    offered = offered_load(trace, size.nodes * size.cores)
    if as_json:
        files.print_json(
            {
                "trace": str(out),
                "system": str(size),
                "seed": seed,
                "jobs": jobs,
                "interactive_jobs": kinds["interactive"].jobs,
                "span_s": span_s,
                "offered_load": offered,
            }
        )
        return
    typer.echo(
        f"{out}: {counted(jobs, 'job')} for {size}, {kinds['interactive'].jobs:,} of them interactive, over "
        f"{span_s / 86_400:.1f} days, offered load "
        f"{'not defined' if offered is None else f'{offered:.1%}'}; "
        f"`osub trace info {quote(str(out))}` shows more"
    )


def patterns(
    folder: Annotated[Path, Argument(help="Folder of recordings (*.csv, *.swf).", metavar="DIR")],
    synthesize_count: Annotated[
        int | None, Option("--synthesize", min=1, help="Make so many new patterns like them.")
    ] = None,
    out: Annotated[Path | None, Option(help="SWF file for the new patterns.", metavar="FILE")] = None,
    clusters: Annotated[
        int | None, Option(min=1, help="Of the recordings; by default from their number.")
    ] = None,
    aligned: Annotated[
        AlignedSeries, Option(help="What is aligned: lengths of periods, or samples of the CPU utilisation.")
    ] = AlignedSeries.PERIODS,
    threshold: Annotated[
        float, Option(min=0, help="Cores above which a sample of a recording is busy.")
    ] = recordings.THRESHOLD_CORES,
    seed: files.Seed = 1,
    force: files.Force = False,
    as_json: files.AsJson = False,
) -> None:
    """Print the statistics of recorded patterns next to the published ones; synthesize more of them.

    Recordings are clustered by dynamic time warping, and barycentres of a cluster's members are new patterns.
    The file of new patterns may be put into a folder for `osub trace interactive --patterns`.
    """
    if (synthesize_count is None) != (out is None):
        raise UsageError("--synthesize and --out go together: how many new patterns, and where to")
    if out is not None:
        files.check_free(out, force)
    library = recordings.read_library(folder, threshold)
    sources = [recording.pattern for recording in library.recordings]
    found = recordings.behaviour_statistics(sources)
    if found is None:
        raise InputError(f"{folder} has no recording with a length")
    sizes: tuple[int, ...] = ()
    made = None
    if synthesize_count is not None and out is not None:
        with files.working(f"synthesizing {counted(synthesize_count, 'pattern')}"):
            synthesis = synthesize(sources, synthesize_count, seed, clusters, aligned)
        sizes = synthesis.cluster_sizes
        made = recordings.behaviour_statistics(synthesis.patterns)
        note = (
            f"osub patterns: {synthesize_count} synthesized from {counted(len(sources), 'recording')} in "
            f"{counted(len(sizes), 'cluster')}, seed {seed}"
        )
        files.deliver(recordings.pattern_trace(synthesis.patterns, note), out)
    if as_json:
        files.print_json(
            {
                "recordings": len(sources),
                "skipped": list(library.skipped),
                "statistics": asdict(found),
                "clusters": list(sizes),
                "synthesized": None if made is None else asdict(made),
                "out": None if out is None else str(out),
                "published": recordings.PUBLISHED,
            }
        )
        return
    console = Console()
    for reason in library.skipped:
        console.say(f"Skipped: {reason}", soft_wrap=True)
    if made is None:
        console.print(files.behaviour_table(found))
        return
    console.print(f"Clusters of {', '.join(map(str, sizes))} recordings", highlight=False)
    console.print(files.behaviour_table(made, ("recorded", found)))
    console.say(f"Patterns: {out}", soft_wrap=True)


def record_job(
    out: Annotated[Path, Option(help="CSV file to write.", metavar="FILE")],
    job: Annotated[int | None, Option(min=1, help="Slurm job, by its cgroups on this node.")] = None,
    pid: Annotated[int | None, Option(min=1, help="Process, with its descendants.")] = None,
    cgroup: Annotated[Path | None, Option(help="Folder of a cgroup, v1 or v2.", metavar="DIR")] = None,
    every: Annotated[float, Option(help="Seconds from sample to sample.")] = SAMPLE_S,
    most: Annotated[
        float | None, Option("--for", help="Seconds to record; by default until the job ends.")
    ] = None,
    name: Annotated[str | None, Option(help="Of the job in the file.")] = None,
    force: files.Force = False,
    as_json: files.AsJson = False,
) -> None:
    """Sample the CPU utilisation of a running job until it ends, Ctrl-C, or --for is over.

    Every sample is in the file as soon as it was taken. A folder of such files is what
    `osub trace interactive --patterns` takes.
    """
    files.check_free(out, force)
    usage, found = _usage(job, pid, cgroup)
    stop = threading.Event()
    with on_signals(lambda _: stop.set()), Console(stderr=True).status("recording") as spinner:
        taken = record(usage, time.monotonic, stop.wait, every, float("inf") if most is None else most)
        series = write_as_taken(
            out,
            name or found,
            taken,
            lambda one: spinner.update(f"{one.elapsed_s:.0f} s, {one.cores:.2f} cores; Ctrl-C ends it"),
        )
    if series is None:
        raise InputError(f"the job was over before the first sample of {every:g} s: nothing was recorded")
    pattern = recordings.busy_idle(series, recordings.THRESHOLD_CORES)
    if as_json:
        files.print_json(
            {
                "series": str(out),
                "name": series.name,
                "samples": len(series.cores),
                "length_s": series.total_s,
                "mean_cores": series.mean_cores,
                "busy_periods": len(pattern.activations_s),
                "busy_s": pattern.busy_s,
            }
        )
        return
    typer.echo(
        f"{out}: {counted(len(series.cores), 'sample')} over {series.total_s:.0f} s, {series.mean_cores:.2f} "
        f"cores on average, {counted(len(pattern.activations_s), 'busy period')} of {pattern.busy_s:.0f} s "
        "in all"
    )


def _usage(job: int | None, pid: int | None, cgroup: Path | None) -> tuple[Usage, str]:
    if sum(given is not None for given in (job, pid, cgroup)) != 1:
        raise UsageError("say what to record with one of --job, --pid and --cgroup")
    if job is not None:
        return CgroupUsage(job_cgroups(job)), f"job-{job}"
    if pid is not None:
        return TreeUsage(pid), f"process-{pid}"
    assert cgroup is not None
    return CgroupUsage([cgroup]), cgroup.name


def interactive(
    trace: files.TraceFile,
    out: files.OutFile,
    patterns: Annotated[
        Path | None,
        Option(
            help="Folder of recorded patterns (*.csv, *.swf); without it they are drawn to match the "
            "published statistics.",
            metavar="DIR",
        ),
    ] = None,
    nearest: Annotated[
        int, Option(min=1, help="Recordings of nearest length among which one is drawn.")
    ] = recordings.NEAREST,
    threshold: Annotated[
        float, Option(min=0, help="Cores above which a sample of a recording is busy.")
    ] = recordings.THRESHOLD_CORES,
    jobs: Annotated[
        int | None, Option(min=0, help="Interactive jobs wanted: random small batch jobs become some.")
    ] = None,
    most_cores: Annotated[int, Option(min=1, help="Of a batch job that may.")] = MOST_CORES,
    most_run: Annotated[float, Option(min=0, help="Seconds, which it must be under.")] = MOST_RUN_S,
    interactive_queue: Annotated[int, Option(min=0, help="SWF queue of interactive jobs.")] = 0,
    seed: files.Seed = 1,
    force: files.Force = False,
    lenient: files.Lenient = False,
    as_json: files.AsJson = False,
) -> None:
    """Embed busy and idle periods in the interactive jobs of TRACE, after making more of them if asked.

    Jobs that have periods keep them. Every embedded pattern fills its job's run time exactly.
    """
    files.check_free(out, force)
    library = None if patterns is None else recordings.read_library(patterns, threshold)
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
    report: recordings.EmbedReport | None = None
    with files.working("embedding periods"):
        if library is None:
            result = embed_patterns(changed, queue, seed)
        else:
            result, report = recordings.embed_recordings(changed, library.recordings, queue, seed, nearest)
        found = recordings.behaviour_statistics(
            [pattern for job in result.jobs if job.queue == queue and (pattern := job.pattern) is not None]
        )
    files.deliver(result, out)
    sessions = sum(job.queue == queue for job in result.jobs)
    if as_json:
        files.print_json(
            {
                "trace": str(out),
                "jobs": len(result.jobs),
                "interactive_jobs": sessions,
                "made_interactive": made,
                "recordings": None if library is None else len(library.recordings),
                "recordings_skipped": [] if library is None else list(library.skipped),
                "embedded": None if report is None else asdict(report),
                "statistics": None if found is None else asdict(found),
                "published": recordings.PUBLISHED,
            }
        )
        return
    console = Console()
    for reason in () if library is None else library.skipped:
        console.say(f"Skipped: {reason}", soft_wrap=True)
    words = f"{counted_of(sessions, len(result.jobs), 'job')} {verb(sessions)} interactive, {made:,} made so"
    if report is not None and library is not None:
        words += (
            f"; {counted_of(report.recordings_used, len(library.recordings), 'recording')} used, one of them "
            f"at most {counted(report.most_used, 'time')}"
        )
    console.say(words, soft_wrap=True)
    if found is not None:
        console.print(files.behaviour_table(found))
    console.say(f"Trace: {out}", soft_wrap=True)
