"""A busy day in a minute or two on a small cluster, for demonstrations.

A window of human activity is scaled to the cluster, with as many jobs as fit in the time, and its
times are compressed until a first-come first-served replay takes the time wanted. Real run times go
from seconds to days, which no replay of a minute can; so their logarithms are compressed: a job that ran
longer than another still does. The offered load is not the original's. What stays is the course of the
arrivals, the mixture of sizes and kinds, the order of run times, and the relation of busy to idle time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.quantiles import quantiles
from foundation.errors import UsageError
from foundation.units import counted
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.models import embed_patterns, interactive_flags, tag_interactive
from workloads.trace.scaling.half_hours import ScaleReport, scale_trace
from workloads.trace.transforms import (
    BusyWindow,
    ClipReport,
    clipped_s,
    compress_apart,
    cut_window,
    find_window,
    with_run_time,
)

BISECTIONS = 16
ARRIVAL_SHARE = 0.6
"""Part of the replay's time in which jobs are submitted."""
LONGEST_SHARE = 0.25
"""No job runs longer than this part of the replay's time."""
INTERACTIVE_SHARE = 0.3
"""Of the jobs, where the number is not given."""
TYPICAL_RUN_S = 3.0
FEWEST_JOBS, MOST_JOBS = 4, 80
MOST_RAISED = 0.25
"""Of the jobs may be raised to the shortest run time before fewer jobs are taken."""


@dataclass(frozen=True, slots=True)
class Miniature:
    """A miniature trace and how it came about.

    Parameters
    ----------
    trace
        Ready for a replay at speed-up 1.
    window, scaling
        What was cut out, and how well the scaling kept its character.
    arrivals_speedup
        Factor by which the times between jobs were divided.
    run_exponent, run_factor
        A run time of r seconds became ``run_factor * r ** run_exponent``, then clipped.
    clipping
        How many run times were raised to the shortest or cut to the longest.
    made_interactive
        Jobs that were declared interactive because the original names none.
    makespan_s
        Seconds from the first submission to the last end under first-come first-served, one job a core.
    """

    trace: SwfTrace
    window: BusyWindow
    scaling: ScaleReport
    arrivals_speedup: float
    run_exponent: float
    run_factor: float
    clipping: ClipReport
    made_interactive: int
    makespan_s: float


def make_miniature(
    trace: SwfTrace,
    nodes: int,
    cores_per_node: int,
    target_s: float,
    batch_jobs: int | None = None,
    interactive_jobs: int | None = None,
    seed: int = 1,
    shortest_s: float = 1.0,
    start_cost_s: float = 0.5,
    interactive_queue: int = 0,
    window: BusyWindow | None = None,
) -> Miniature:
    """Return ``trace`` as a replay of about ``target_s`` seconds on a small cluster.

    Parameters
    ----------
    trace
        The original, of any size.
    nodes, cores_per_node
        The cluster.
    target_s
        Seconds that a replay with one job a core takes at most; less where so many jobs don't fill it.
    batch_jobs, interactive_jobs
        About how many of each to keep; by default as many as run for some seconds each. Where the
        original names no interactive jobs, this many narrow jobs are declared interactive.
    seed
        Of all random choices.
    shortest_s
        Run times are raised to this, so that each job does something (counted in ``clipping``).
    start_cost_s
        What Slurm needs to start and end a job, for the estimate of the makespan.
    interactive_queue
        The queue of interactive jobs in the original and in the result.
    window
        Where in the original; by default ``find_window``.

    Raises
    ------
    UsageError
        An argument is out of range, the window has no job to run, or so many jobs cannot run in
        ``target_s`` even at their shortest.
    """
    plan = _Plan(nodes, cores_per_node, target_s, seed, shortest_s, start_cost_s, interactive_queue)
    if not 0 < shortest_s <= plan.longest_s or (batch_jobs or 1) < 1 or (interactive_jobs or 0) < 0:
        least_s = shortest_s / LONGEST_SHARE
        raise UsageError(f"a miniature needs at least 1 batch job and a duration of at least {least_s:g} s")
    chosen = window or find_window(trace, interactive_queue)
    day = _runnable(cut_window(trace, chosen.start_s, chosen.length_s))
    # as many serial jobs of typical length as run in half of the time; fewer until wider ones fit, too
    job_count = min(MOST_JOBS, int(plan.procs * target_s / 2 / (TYPICAL_RUN_S + start_cost_s)))
    while True:
        job_count = max(FEWEST_JOBS, job_count)
        interactive = round(INTERACTIVE_SHARE * job_count)
        miniature = _fit(
            day,
            chosen,
            plan,
            job_count - interactive if batch_jobs is None else batch_jobs,
            interactive if interactive_jobs is None else interactive_jobs,
        )
        fits = miniature.makespan_s <= target_s
        crowded = miniature.clipping.raised > MOST_RAISED * miniature.clipping.jobs
        given = batch_jobs is not None and interactive_jobs is not None
        if fits and (given or not crowded or job_count <= FEWEST_JOBS):
            return miniature
        if given or job_count <= FEWEST_JOBS:
            least_s, jobs = miniature.makespan_s, len(miniature.trace.jobs)
            raise UsageError(
                f"{counted(jobs, 'job')} of {shortest_s:g} s or more take {least_s:.0f} s on "
                f"{counted(nodes, 'node')} of {counted(cores_per_node, 'core')}, not {target_s:g} s: take "
                "fewer jobs or more time"
            )
        job_count = job_count * 3 // 4


@dataclass(frozen=True, slots=True)
class _Plan:
    """The arguments of ``make_miniature`` that every attempt shares."""

    nodes: int
    cores_per_node: int
    target_s: float
    seed: int
    shortest_s: float
    start_cost_s: float
    interactive_queue: int

    @property
    def procs(self) -> int:
        return self.nodes * self.cores_per_node

    @property
    def longest_s(self) -> float:
        return LONGEST_SHARE * self.target_s


def _fit(day: SwfTrace, window: BusyWindow, plan: _Plan, batch_jobs: int, interactive_jobs: int) -> Miniature:
    queue = plan.interactive_queue
    named = any(interactive_flags(day, queue))
    if interactive_jobs and not named:
        share = interactive_jobs / (interactive_jobs + batch_jobs)
        narrow = max(plan.cores_per_node, int(np.median([job.procs or 1 for job in day.jobs])))
        day = tag_interactive(day, share, narrow, queue, plan.seed)
    small, scaling = _with_about(day, plan, batch_jobs, interactive_jobs)
    arrivals = window.length_s / (ARRIVAL_SHARE * plan.target_s)
    quick = compress_apart(embed_patterns(small, queue, plan.seed), arrivals, 1)
    runs_s = np.array([max(job.run_s or 0, 1) for job in quick.jobs], dtype=np.float64)
    short_s, long_s = quantiles(runs_s, (0.05, 0.95))
    spread = max(math.log(long_s / short_s), 1e-9)
    exponent = min(1.0, math.log(plan.longest_s / plan.shortest_s) / spread)

    def fitted(factor: float) -> tuple[list[SwfJob], ClipReport, float]:
        new_s, clipping = clipped_s((factor * runs_s**exponent).tolist(), plan.shortest_s, plan.longest_s)
        jobs = list(map(with_run_time, quick.jobs, new_s))
        return jobs, clipping, fcfs_makespan_s(jobs, plan.procs, plan.start_cost_s)

    largest = plan.longest_s / float(long_s) ** exponent
    factor = _largest_fitting(lambda factor: fitted(factor)[2], plan.target_s, largest)
    jobs, clipping, makespan_s = fitted(factor)
    note = (
        f"osub miniature: run times to the power {exponent:.4g} times {factor:.4g}, within "
        f"{plan.shortest_s:g} and {plan.longest_s:g} s, {clipping.raised} raised, {clipping.cut} cut"
    )
    return Miniature(
        trace=quick.with_jobs(jobs, note),
        window=window,
        scaling=scaling,
        arrivals_speedup=arrivals,
        run_exponent=exponent,
        run_factor=factor,
        clipping=clipping,
        made_interactive=0 if named else scaling.interactive_jobs,
        makespan_s=makespan_s,
    )


def _runnable(day: SwfTrace) -> SwfTrace:
    """Return the jobs that have a size and a run time."""
    jobs = [job for job in day.jobs if job.procs and job.run_s is not None]
    if not jobs:
        raise UsageError(
            f"no job of {day.name} in the window has both a size and a run time: take another window"
        )
    if len(jobs) == len(day.jobs):
        return day
    return day.with_jobs(
        jobs, f"osub miniature: {counted(len(day.jobs) - len(jobs), 'job')} without size or run time left out"
    )


def _with_about(
    day: SwfTrace, plan: _Plan, batch_jobs: int, interactive_jobs: int
) -> tuple[SwfTrace, ScaleReport]:
    """Scale ``day`` with the intensity that leaves about ``batch_jobs``; keep ``interactive_jobs``."""
    flags = interactive_flags(day, plan.interactive_queue)
    batch_cores = sum(job.procs or 0 for job, flag in zip(day.jobs, flags, strict=True) if not flag)
    interactive_share = min(1.0, interactive_jobs / max(1, sum(flags)))
    from_procs = day.header.system_procs or max(job.procs or 1 for job in day.jobs)

    def scaled(intensity: float) -> tuple[SwfTrace, ScaleReport]:
        return scale_trace(
            day,
            plan.nodes,
            plan.cores_per_node,
            plan.seed,
            from_procs,
            plan.interactive_queue,
            interactive_share,
            intensity,
        )

    # between half a core in all, and twice as many as if every job had the whole cluster
    unit = from_procs / plan.procs / max(1, batch_cores)
    low, high = math.log(0.5 * unit), math.log(2 * batch_jobs * plan.procs * unit)
    best: tuple[int, SwfTrace, ScaleReport] | None = None
    for _ in range(BISECTIONS if batch_cores else 1):
        middle = (low + high) / 2
        trace, report = scaled(math.exp(middle))
        miss = abs(report.jobs_after - batch_jobs)
        if best is None or miss < best[0]:
            best = (miss, trace, report)
        if miss <= 0.03 * batch_jobs:
            break
        low, high = (middle, high) if report.jobs_after < batch_jobs else (low, middle)
    assert best is not None
    return best[1], best[2]


def _largest_fitting(makespan_s: Callable[[float], float], target_s: float, largest: float) -> float:
    """Return about the largest factor, up to ``largest``, with which the makespan is at most ``target_s``."""
    if makespan_s(largest) <= target_s:
        return largest
    low, high = math.log(largest) - 20, math.log(largest)
    for _ in range(2 * BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if makespan_s(math.exp(middle)) > target_s else (middle, high)
    return math.exp(low)


def fcfs_makespan_s(jobs: Sequence[SwfJob], procs: int, start_cost_s: float = 0.0) -> float:
    """Return the seconds from the first submission to the last end, first come first served.

    Each processor has one job at a time; every job takes ``start_cost_s`` longer than its run time.
    ``jobs`` are in the order of submission and none is wider than ``procs``.
    """
    running: list[tuple[float, int]] = []
    free, now_s, last_s = procs, 0.0, 0.0
    for job in jobs:
        width = job.procs or 1
        now_s = max(now_s, job.submit_s)
        while running and (free < width or running[0][0] <= now_s):
            end_s, released = heapq.heappop(running)
            now_s = max(now_s, end_s)
            free += released
        end_s = now_s + (job.run_s or 0) + start_cost_s
        heapq.heappush(running, (end_s, width))
        free -= width
        last_s = max(last_s, end_s)
    return last_s - jobs[0].submit_s if jobs else 0.0
