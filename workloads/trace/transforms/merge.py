"""Several traces as one: jobs of one day with those of another, or of two machines on one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from foundation.errors import UsageError
from foundation.units import counted
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.durations import to_ms, to_s


class Align(StrEnum):
    """Which instants of merged traces fall together: their seconds 0, or equal dates."""

    START = "start"
    DATES = "dates"


def merge_traces(traces: Sequence[SwfTrace], align: Align = Align.START, same_users: bool = True) -> SwfTrace:
    """Return the jobs of all ``traces`` in the order of submission, under the first trace's header.

    A job whose number an earlier trace has gets the next free one; links to preceding jobs follow.

    Parameters
    ----------
    traces
        At least one. The system's size and the dates are the first one's.
    align
        By dates, the second 0 of the result is the earliest one of all traces.
    same_users
        Whether equal user, group and executable numbers mean the same in all traces. Otherwise those of each
        further trace follow after the largest of the earlier ones.

    Raises
    ------
    UsageError
        There is no trace, or dates are to be aligned and a trace has none.
    """
    if not traces:
        raise UsageError("merging needs at least one trace")
    starts_s = [_start_s(trace, align) for trace in traces]
    first_s = min(starts_s)
    jobs: list[SwfJob] = []
    for trace, start_s in zip(traces, starts_s, strict=True):
        shift = _largest(jobs) if jobs and not same_users else (0, 0, 0)
        jobs += _fitted(trace.jobs, 1000 * (start_s - first_s), shift, {job.job_number for job in jobs})
    jobs.sort(key=lambda job: job.submit_s)
    names = ", ".join(f"{trace.name} ({counted(len(trace.jobs), 'job')})" for trace in traces)
    note = f"osub merge: {names}, aligned by {align}, {'the same' if same_users else 'different'} users"
    merged = traces[0].with_jobs(jobs, note)
    if align is Align.START:
        return merged
    return replace(merged, header=merged.header.with_field("UnixStartTime", first_s))


def _start_s(trace: SwfTrace, align: Align) -> int:
    if align is Align.START:
        return 0
    start_s = trace.header.unix_start_time_s
    if start_s is None:
        raise UsageError(f"trace {trace.name} has no UnixStartTime, so no dates: merge by start instead")
    return start_s


def _largest(jobs: Sequence[SwfJob]) -> tuple[int, int, int]:
    return (
        max((job.user for job in jobs if job.user is not None), default=0),
        max((job.group for job in jobs if job.group is not None), default=0),
        max((job.executable for job in jobs if job.executable is not None), default=0),
    )


def _fitted(
    jobs: Sequence[SwfJob], ahead_ms: int, shift: tuple[int, int, int], taken: set[int]
) -> list[SwfJob]:
    """Return ``jobs`` moved in time, with numbers that are not taken, and identifiers shifted."""
    following = max((*taken, *(job.job_number for job in jobs)), default=0) + 1
    renamed: dict[int, int] = {}
    for job in jobs:
        if job.job_number in taken and job.job_number not in renamed:
            renamed[job.job_number] = following
            following += 1
    if not renamed and not ahead_ms and not any(shift):
        return list(jobs)
    return [
        replace(
            job,
            job_number=renamed.get(job.job_number, job.job_number),
            submit_s=to_s(to_ms(job.submit_s) + ahead_ms) if ahead_ms else job.submit_s,
            user=_shifted(job.user, shift[0]),
            group=_shifted(job.group, shift[1]),
            executable=_shifted(job.executable, shift[2]),
            preceding_job=None
            if job.preceding_job is None
            else renamed.get(job.preceding_job, job.preceding_job),
        )
        for job in jobs
    ]


def _shifted(number: int | None, shift: int) -> int | None:
    return None if number is None else number + shift
