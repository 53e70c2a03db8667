"""The plain transforms of ``osub trace convert``, in one order: cut, select, more or fewer, tag, sort."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

from foundation.errors import UsageError
from foundation.units import counted, verb
from workloads.swf import SwfJob, SwfTrace
from workloads.swf.swf_job import LARGEST
from workloads.trace.transforms.busy_window import (
    clip_run_times,
    compress,
    compress_apart,
    cut_window,
    scale_arrivals,
)
from workloads.trace.transforms.filters import DrawBy, Selection, TagField, select_jobs, tag_jobs


@dataclass(frozen=True, slots=True)
class Tag:
    """A number in a field that marks jobs as a class of their own, and the class's name if it has one."""

    field: TagField
    number: int
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagging:
    """Which tags go to which jobs: a share of the jobs, or of the users, of a selection."""

    tags: tuple[Tag, ...] = ()
    share: float = 1.0
    by: DrawBy = DrawBy.JOB
    among: Selection = Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceConversion:
    """What is done to a trace, in the order of the fields; None and False: not done.

    Attributes
    ----------
    start_s, length_s
        The stretch to keep; None: from the first submission, to the last one.
    selection
        The jobs to keep.
    arrivals
        So many times as many jobs in the same time.
    gaps
        What the times between submissions are divided by; run times stay.
    shortest_run_s, longest_run_s
        Shorter run times are raised to the first, longer ones cut to the second.
    tagging
        The classes that jobs are marked as.
    speedup
        What every time is divided by.
    sort
        Whether jobs are put in the order of their submission.
    seed
        Of whatever is drawn at random.
    """

    start_s: float | None = None
    length_s: float | None = None
    selection: Selection = Selection()
    arrivals: float | None = None
    gaps: float | None = None
    shortest_run_s: float | None = None
    longest_run_s: float | None = None
    tagging: Tagging = Tagging()
    speedup: float | None = None
    sort: bool = False
    seed: int = 1


def converted(trace: SwfTrace, asked: TraceConversion) -> SwfTrace:
    """Return what is made of a trace; each step leaves a Note in the header. Raises UsageError."""
    changed = select_jobs(_cut(_one_number_a_job(trace), asked.start_s, asked.length_s), asked.selection)
    if asked.arrivals is not None:
        changed = scale_arrivals(changed, asked.arrivals, asked.seed)
    if asked.gaps is not None:
        changed = compress_apart(changed, asked.gaps, 1)
    if asked.shortest_run_s is not None or asked.longest_run_s is not None:
        longest_s = float("inf") if asked.longest_run_s is None else asked.longest_run_s
        changed, _ = clip_run_times(changed, asked.shortest_run_s or 0.0, longest_s)
    to = asked.tagging
    for tag in to.tags:
        changed = tag_jobs(changed, tag.field, tag.number, to.share, asked.seed, to.among, to.by, tag.name)
    if asked.speedup is not None:
        changed = compress(changed, asked.speedup)
    return in_order(changed) if asked.sort else changed


def _one_number_a_job(trace: SwfTrace) -> SwfTrace:
    """Return ``trace`` with new numbers for jobs whose number an earlier one has; a Note says so."""
    if joined := trace.report.joined:
        parts = f"{counted(joined, 'line')} that {verb(joined)} part of {counted(trace.report.parted, 'job')}"
        trace = replace(trace.with_jobs(trace.jobs, f"osub convert: joined {parts}"), report=trace.report)
    if not trace.report.duplicates:
        return trace
    taken = {job.job_number for job in trace.jobs}
    after = max(taken) + 1
    free = (
        number for number in count(after if after <= LARGEST - len(trace.jobs) else 0) if number not in taken
    )
    seen: set[int] = set()
    jobs: list[SwfJob] = []
    for job in trace.jobs:
        jobs.append(replace(job, job_number=next(free)) if job.job_number in seen else job)
        seen.add(job.job_number)
    again = counted(trace.report.duplicates, "job")
    return trace.with_jobs(
        jobs, f"osub convert: {again} with the number of an earlier one: numbered after the largest"
    )


def in_order(trace: SwfTrace) -> SwfTrace:
    """Return ``trace`` with its jobs ordered by submission; jobs of one instant stay in order."""
    jobs = tuple(sorted(trace.jobs, key=lambda job: job.submit_s))
    if jobs == trace.jobs:
        return trace
    return trace.with_jobs(jobs, "osub convert: jobs put in the order of submission")


def _cut(trace: SwfTrace, start_s: float | None, length_s: float | None) -> SwfTrace:
    if start_s is None and length_s is None:
        return trace
    submits = [job.submit_s for job in trace.jobs]
    first_s = min(submits) if start_s is None else start_s
    if length_s is None:
        length_s = max(0.0, max(submits) - first_s) + 1
    if not 0 < length_s < float("inf"):
        raise UsageError(f"--length must be above 0, not {length_s}")
    return cut_window(trace, first_s, length_s)
