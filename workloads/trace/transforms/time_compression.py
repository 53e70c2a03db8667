"""Time compression: the same trace in less time."""

from __future__ import annotations

from dataclasses import replace

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
