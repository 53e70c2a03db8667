"""New run times for the jobs of a trace, and everything in a job that follows from its run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foundation.errors import UsageError
from foundation.units import checked_speedup
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.durations import stretch, to_ms, to_s


def compress(trace: SwfTrace, speedup: float) -> SwfTrace:
    """Divide every time of ``trace`` by ``speedup``, to the millisecond.

    Submit, wait, run, CPU, requested and think times, and the busy and idle periods of interactive
    jobs. A pattern that filled its job's run time to the millisecond does so afterwards. Jobs keep
    their order.

    Raises
    ------
    UsageError
        ``speedup`` is no factor that a trace can have.
    """
    return compress_apart(trace, checked_speedup(speedup), speedup)


def compress_apart(trace: SwfTrace, arrivals: float, jobs: float) -> SwfTrace:
    """Divide the times between jobs by ``arrivals``, and those within jobs by ``jobs``.

    Between jobs are submit, wait and think times. Within are run, CPU and requested times, and the busy and
    idle periods. With two factors the offered load changes, by ``arrivals / jobs``.

    Raises
    ------
    UsageError
        A factor is not a positive number.
    """
    for factor in (arrivals, jobs):
        if not 0 < factor < float("inf"):
            raise UsageError(f"a speed-up of {factor} is not possible: give a number above 0")
    note = f"osub compress: speed-up {arrivals:g}"
    if arrivals != jobs:
        note += f" between jobs, {jobs:g} within"
    return trace.with_jobs((_divided(job, arrivals, jobs) for job in trace.jobs), note)


def _divided(job: SwfJob, arrivals: float, jobs: float) -> SwfJob:
    pattern = job.pattern
    extension = job.extension
    if pattern is not None:
        total_ms = _divide_ms(to_ms(pattern.total_s), jobs)
        extension = stretch(pattern, total_ms).to_extension(job.extension[:3])
    return replace(
        job,
        submit_s=to_s(_divide_ms(to_ms(job.submit_s), arrivals)),
        wait_s=_divide(job.wait_s, arrivals),
        run_s=_divide(job.run_s, jobs),
        cpu_s=_divide(job.cpu_s, jobs),
        requested_s=_divide(job.requested_s, jobs),
        think_s=_divide(job.think_s, arrivals),
        extension=extension,
    )


def _divide_ms(milliseconds: int, factor: float) -> int:
    return round(milliseconds / factor)


def _divide(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else to_s(_divide_ms(to_ms(seconds), factor))


@dataclass(frozen=True, slots=True)
class ClipReport:
    """How many of ``jobs`` had their run times raised to the shortest or cut to the longest allowed."""

    raised: int
    cut: int
    jobs: int


def clip_run_times(
    trace: SwfTrace, shortest_s: float, longest_s: float, but_queue: int | None = None
) -> tuple[SwfTrace, ClipReport]:
    """Bring every known run time between ``shortest_s`` and ``longest_s``.

    Busy and idle periods are stretched to the new run time, CPU and requested time follow in
    proportion. The counts are in the header and the report. Jobs of ``but_queue`` stay as they are.

    Raises
    ------
    UsageError
        The bounds are not in order.
    """
    runs_s = [None if spared(job, but_queue) else job.run_s for job in trace.jobs]
    clipped, report = clipped_s(runs_s, shortest_s, longest_s)
    note = (
        f"osub clip: run times to {shortest_s:g} to {longest_s:g} s, {report.raised} raised, {report.cut} cut"
    )
    if but_queue is not None:
        note += f", queue {but_queue} left alone"
    return trace.with_jobs(map(with_run_time, trace.jobs, clipped), note), report


def spared(job: SwfJob, queue: int | None) -> bool:
    """Return whether ``job`` is in ``queue``, which is left alone; ``None`` spares no job."""
    return queue is not None and job.queue == queue


def clipped_s(
    runs_s: Sequence[float | None], shortest_s: float, longest_s: float
) -> tuple[list[float | None], ClipReport]:
    """Return ``runs_s`` within the bounds, and how many were not; ``UsageError`` for bounds out of order."""
    if not 0 <= shortest_s <= longest_s:
        raise UsageError(
            f"run times cannot be within {shortest_s:g} and {longest_s:g} s: give 0 <= shortest <= longest"
        )
    known = [run_s for run_s in runs_s if run_s is not None]
    report = ClipReport(
        sum(run_s < shortest_s for run_s in known), sum(run_s > longest_s for run_s in known), len(runs_s)
    )
    return [None if run_s is None else min(max(run_s, shortest_s), longest_s) for run_s in runs_s], report


def with_run_time(job: SwfJob, run_s: float | None) -> SwfJob:
    """Return ``job`` with another run time, to the millisecond.

    The busy and idle periods fill it as they filled the old one. CPU and requested time change in
    proportion; the request is at least the run time if it was so before.
    """
    if run_s is None or job.run_s is None:
        return job
    before_ms, after_ms = to_ms(job.run_s), to_ms(run_s)
    if before_ms == after_ms:
        return job
    pattern = job.pattern
    return replace(
        job,
        run_s=to_s(after_ms),
        cpu_s=_in_proportion(job.cpu_s, before_ms, after_ms),
        requested_s=_in_proportion(job.requested_s, before_ms, after_ms),
        extension=job.extension
        if pattern is None
        else stretch(pattern, _proportional_ms(to_ms(pattern.total_s), before_ms, after_ms)).to_extension(
            job.extension[:3]
        ),
    )


def _in_proportion(seconds: float | None, before_ms: int, after_ms: int) -> float | None:
    return None if seconds is None else to_s(_proportional_ms(to_ms(seconds), before_ms, after_ms))


def _proportional_ms(ms: int, before_ms: int, after_ms: int) -> int:
    """Return ``ms`` times after/before; without a run time before, at least ``after_ms``."""
    return max(ms, after_ms) if before_ms == 0 else round(ms * after_ms / before_ms)
