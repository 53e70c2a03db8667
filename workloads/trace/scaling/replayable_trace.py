"""From a real trace to one that a smaller system replays: window, merging, scaling, clipping, compression.

Source: thesis section 7.4.3. Its own choices for UniLu-Gaia, found from what it prints, are ``THESIS``:

* batch jobs from job 2814 on, t = 1,212,255 s, 16.5 hours of 2014-06-05;
* interactive jobs from the same hours of 2014-06-11, those of more than 12 cores left out. These 14 are the
  ones of Table 7.2: at most 12 cores and 43,209 s, 8,566 s on average, none from then until 8 the next day;
* run times of batch jobs cut to 14,410 s;
* sizes relative to 1,800 cores (N150C12).

A trace on a far smaller cluster, job by job: every job keeps its share of the system, and its arrival.

On a few cores no job can keep its size: 12 of 144 cores are a sixth of a core of two. What can be kept is
which part of the whole system's time a job takes. So a job that becomes wider relative to its system becomes
shorter, and the offered load stays; times are then divided by the compression. Serial jobs stay serial. Jobs
that fill a node or more keep two ranks at least, or no job would have anything to coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date

from foundation.errors import UsageError
from foundation.units import counted
from workloads.job_shape import job_shape
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.local_clock import DAY_S, TraceClock, day_number
from workloads.trace.models import embed_patterns, interactive_flags
from workloads.trace.scaling.half_hours import ScaleReport, scale_trace
from workloads.trace.transforms import (
    THESIS_WINDOW,
    BusyWindow,
    ClipReport,
    clip_run_times,
    compress,
    cut_window,
    find_window,
    merge_traces,
    with_run_time,
)

COUPLED = 2
_MINUTE_S = 60
_GENEROUS = 4


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """A cluster of equal nodes, of which batch jobs may use ``batch_nodes``."""

    nodes: int
    cores: int
    batch_nodes: int

    @property
    def procs(self) -> int:
        """All cores."""
        return self.nodes * self.cores


@dataclass(frozen=True, slots=True)
class KeptShare:
    """The trace, and how many of its jobs were raised to the shortest run time."""

    trace: SwfTrace
    raised: int


def keep_shares(
    trace: SwfTrace,
    original: ClusterSize,
    small: ClusterSize,
    compression: float,
    shortest_s: float,
    interactive_queue: int = 0,
) -> KeptShare:
    """Return the trace for a smaller cluster.

    Parameters
    ----------
    trace
        Made for ``original``; interactive jobs are in ``interactive_queue``.
    original, small
        From which cluster to which. Interactive jobs get one node at most.
    compression
        What all times are divided by.
    shortest_s
        Batch jobs and interactive ones are raised to this. Requests are four times the run time and a minute,
        rounded up to whole minutes as Slurm does it: no job of seconds is to end at its limit.

    Raises
    ------
    UsageError
        The compression is not above 0, or the shortest is negative.
    """
    if not 0 < compression < math.inf or shortest_s < 0:
        raise UsageError(f"a compression of {compression:g} to at least {shortest_s:g} s is not possible")
    jobs, raised = [], 0
    for job in trace.jobs:
        is_interactive = job.queue == interactive_queue
        procs = _procs(job.procs or 1, original, small, interactive=is_interactive)
        share = (job.procs or 1) / original.procs * small.procs / procs
        run_s = (job.run_s or 0) * share / compression
        raised += run_s < shortest_s
        jobs.append(_fitted(job, procs, max(run_s, shortest_s), compression))
    note = (
        f"osub share: from N{original.nodes}C{original.cores} to N{small.nodes}C{small.cores}, each job with "
        f"its share of the system; times divided by {compression:g}; {raised} raised to {shortest_s:g} s"
    )
    header = trace.header.with_field("MaxNodes", small.nodes).with_field("MaxProcs", small.procs)
    return KeptShare(replace(trace, header=header).with_jobs(jobs, note), raised)


def _procs(procs: int, original: ClusterSize, small: ClusterSize, *, interactive: bool) -> int:
    """Return the processors of a job on the smaller cluster."""
    wanted = max(1, round(procs * small.procs / original.procs))
    if procs >= original.cores and not interactive:
        wanted = max(wanted, COUPLED)
    wanted = min(wanted, small.cores if interactive else small.batch_nodes * small.cores)
    nodes = 1 if interactive else small.batch_nodes
    return next(size for size in range(wanted, 0, -1) if job_shape(size, nodes, small.cores) is not None)


def _fitted(job: SwfJob, procs: int, run_s: float, compression: float) -> SwfJob:
    shorter = with_run_time(job, round(run_s, 3))
    limit_s = float(_MINUTE_S * (1 + math.ceil(_GENEROUS * run_s / _MINUTE_S)))
    return replace(
        shorter,
        submit_s=round(job.submit_s / compression, 3),
        allocated_procs=procs,
        requested_procs=procs if job.requested_procs is not None else None,
        requested_s=limit_s,
    )


GAIA_START_S = 1_400_749_079

WINDOWS = ("auto", "thesis", "busy", "all")


@dataclass(frozen=True, slots=True)
class ScalingSource:
    """Where in a trace the jobs come from.

    Parameters
    ----------
    window
        Of the batch jobs, and of the interactive ones unless ``interactive_day`` names another day.
    interactive_day
        Take the interactive jobs from the same hours of this day; ``None`` for the window's own.
    drop_wider_than
        Interactive jobs of more cores are left out; ``None`` for none. Those wider than a node of the
        target are narrowed to one.
    longest_run_s
        Batch jobs that ran longer are cut to this; ``None`` for none.
    from_procs
        Processors of the original system; ``None`` for what the header says.
    """

    window: BusyWindow
    interactive_day: date | None = None
    drop_wider_than: int | None = None
    longest_run_s: float | None = None
    from_procs: int | None = None


THESIS = ScalingSource(
    THESIS_WINDOW, date(2014, 6, 11), drop_wider_than=12, longest_run_s=14_410, from_procs=1800
)


@dataclass(frozen=True, slots=True)
class ScalingTarget:
    """What to make of the jobs: the parameters of ``scale_trace``, periods, and time compression."""

    nodes: int
    cores_per_node: int
    seed: int = 1
    interactive_queue: int | None = 0
    interactive_share: float = 1.0
    intensity: float = 1.0
    tolerance: float = 0.1
    periods: bool = True
    speedup: float = 1.0


@dataclass(frozen=True, slots=True)
class Experiment:
    """A trace for an experiment, and how it came about.

    Parameters
    ----------
    original
        The window's jobs before scaling, second 0 at its start.
    scaled
        After scaling, clipping and embedding, not yet compressed in time.
    trace
        The result.
    report
        How well the scaling kept the trace's character.
    clipping
        Run times that were cut; ``None`` where none was asked for.
    dropped
        Interactive jobs left out because they are too wide.
    """

    original: SwfTrace
    scaled: SwfTrace
    trace: SwfTrace
    report: ScaleReport
    clipping: ClipReport | None
    dropped: int


def is_gaia(trace: SwfTrace) -> bool:
    """Return whether ``trace`` is UniLu-Gaia-2014-1, by its dates and the window's first job."""
    return trace.header.unix_start_time_s == GAIA_START_S and any(
        job.job_number == 2814 and job.submit_s == THESIS_WINDOW.start_s for job in trace.jobs
    )


def make_experiment(
    trace: SwfTrace,
    source: ScalingSource,
    target: ScalingTarget,
    progress: Callable[[int, int], None] | None = None,
) -> Experiment:
    """Return the jobs of ``source`` as a trace for ``target``.

    Raises
    ------
    UsageError
        As ``cut_window``, ``scale_trace``, ``clip_run_times`` and ``compress`` say; or a day is named of a
        trace that has no dates or no job on it.
    """
    window = source.window
    day = cut_window(trace, window.start_s, window.length_s)
    if source.interactive_day is not None:
        day = _with_interactive_day(trace, day, source.interactive_day, window, target.interactive_queue)
    before = len(day.jobs)
    if source.drop_wider_than is not None:
        day = _without_wide(day, target.interactive_queue, source.drop_wider_than)
    scaled, report = scale_trace(
        day,
        target.nodes,
        target.cores_per_node,
        target.seed,
        source.from_procs,
        target.interactive_queue,
        target.interactive_share,
        target.intensity,
        target.tolerance,
        progress,
    )
    clipping = None
    if source.longest_run_s is not None:
        scaled, clipping = clip_run_times(scaled, 0, source.longest_run_s, target.interactive_queue)
    if (
        target.periods
        and target.interactive_queue is not None
        and any(interactive_flags(scaled, target.interactive_queue))
    ):
        scaled = embed_patterns(scaled, target.interactive_queue, target.seed)
    return Experiment(
        original=day,
        scaled=scaled,
        trace=scaled if target.speedup == 1 else compress(scaled, target.speedup),
        report=report,
        clipping=clipping,
        dropped=before - len(day.jobs),
    )


def _with_interactive_day(
    trace: SwfTrace, day: SwfTrace, wanted: date, window: BusyWindow, queue: int | None
) -> SwfTrace:
    """Return ``day`` with the interactive jobs of the same hours of ``wanted`` in place of its own."""
    if queue is None:
        raise UsageError("interactive jobs of another day need an interactive queue")
    clock = TraceClock.of(trace.header, min(job.submit_s for job in trace.jobs))
    local = clock.date(window.start_s)
    if local is None:
        raise UsageError(f"trace {trace.name} has no dates, so no {wanted.isoformat()}")
    second = 3600 * local.hour + 60 * local.minute + local.second
    start_s = clock.trace_s(day_number(clock, wanted, trace.name), second)
    other = cut_window(trace, start_s, window.length_s)
    sessions = [job for job in other.jobs if job.queue == queue]
    if not sessions:
        raise UsageError(f"trace {trace.name} has no interactive job in these hours of {wanted.isoformat()}")
    batch = [job for job in day.jobs if job.queue != queue]
    interactive = replace(other, jobs=tuple(sessions), name=f"interactive jobs of {wanted.isoformat()}")
    note = f"osub window: without its own {counted(len(day.jobs) - len(batch), 'interactive job')}"
    return merge_traces([day.with_jobs(batch, note), interactive])


def _without_wide(day: SwfTrace, queue: int | None, most_cores: int) -> SwfTrace:
    flags = interactive_flags(day, queue)
    kept = [
        job
        for job, flag in zip(day.jobs, flags, strict=True)
        if not (flag and job.procs is not None and job.procs > most_cores)
    ]
    if len(kept) == len(day.jobs):
        return day
    dropped = len(day.jobs) - len(kept)
    return day.with_jobs(
        kept,
        f"osub select: {counted(dropped, 'interactive job')} of more than {counted(most_cores, 'core')} left "
        "out",
    )


def window_of_day(trace: SwfTrace, day: date, start_hour: float, length_s: float) -> BusyWindow:
    """Return the window of ``length_s`` seconds from ``start_hour`` o'clock of ``day``, all of it active.

    Raises
    ------
    UsageError
        The trace has no dates.
    """
    clock = TraceClock.of(trace.header, min(job.submit_s for job in trace.jobs))
    second = round(3600 * start_hour)
    start_s = clock.trace_s(day_number(clock, day, trace.name) + second // DAY_S, second % DAY_S)
    return BusyWindow(
        start_s, start_s, start_s + length_s, start_s + length_s, f"{day.isoformat()}, as asked for"
    )


def source_of(
    trace: SwfTrace,
    window: str,
    start: float | None,
    hours: float | None,
    first_hour: float,
    warm_up: float,
    cool_down: float,
    queue: int | None,
) -> ScalingSource:
    """Return the part of a trace that an experiment is made of.

    Parameters
    ----------
    trace
        The trace.
    window
        One of ``WINDOWS``, or a date.
    start, hours
        The beginning in seconds, and the length in hours, in place of a window.
    first_hour
        Where a day's window of so many hours begins.
    warm_up, cool_down
        Hours before and after the active phase.
    queue
        The queue of interactive jobs; None: there are none.

    Raises
    ------
    UsageError
        Two of them contradict each other, or a window is none.
    """
    length_s = 3600 * (24.0 if hours is None else hours)
    if not 0 < length_s < float("inf"):
        raise UsageError(f"--hours must be above 0, not {hours}")
    if start is not None:
        if window != "auto":
            raise UsageError("--start and --window exclude each other: give one of them")
        return ScalingSource(BusyWindow(start, start, start + length_s, start + length_s, "as asked for"))
    if window == "thesis" or (window == "auto" and is_gaia(trace)):
        if not is_gaia(trace):
            raise UsageError(f"--window thesis is for UniLu-Gaia-2014-1; {trace.name} is another trace")
        return THESIS
    if window in ("auto", "busy"):
        return ScalingSource(find_window(trace, queue, 3600 * warm_up, 3600 * cool_down))
    if window == "all":
        submits = [job.submit_s for job in trace.jobs]
        first_s, end_s = min(submits), max(submits) + 1
        return ScalingSource(BusyWindow(first_s, first_s, end_s, end_s, "the whole trace"))
    try:
        day = date.fromisoformat(window)
    except ValueError as error:
        raise UsageError(f"--window takes {', '.join(WINDOWS)} or a date, not {window!r}") from error
    if hours is None:
        return ScalingSource(find_window(trace, queue, 3600 * warm_up, 3600 * cool_down, day=day))
    return ScalingSource(window_of_day(trace, day, first_hour, length_s))


def known_procs(trace: SwfTrace, source: ScalingSource) -> int:
    """Return how many cores the trace's system has; raises UsageError where it is unknown."""
    known = source.from_procs or trace.header.system_procs
    if known is None:
        raise UsageError(f"the header of {trace.name} does not tell its system's size: give --from-procs")
    return known
