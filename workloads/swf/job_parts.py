"""Joins the lines of one job: the log of a gang-scheduled machine has one for each part between suspensions.

Source: the Parallel Workloads Archive's page on the Standard Workload Format, field 11: status 2 is a part
that goes on, 3 and 4 the last part of a job that completed or failed. A summary line, of any other status,
comes first where there is one, and then only it has a submit time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from workloads.swf.swf_job import SwfJob
from workloads.swf.swf_line import LARGEST

PART_STATUSES = frozenset({2, 3, 4})
_GOES_ON = 2
_STATUS_OF_WHOLE = {2: None, 3: 1, 4: 0}


@dataclass(slots=True)
class JoinedParts:
    """What became of lines, by their place: ``dropped`` ones are in another job, ``changed`` have a new job.

    ``jobs`` counts the jobs that had several lines.
    """

    dropped: list[int] = field(default_factory=list)
    changed: dict[int, SwfJob] = field(default_factory=dict)
    jobs: int = 0

    def kept_before(self, place: int) -> int:
        """Return how many of the lines before ``place`` are left."""
        return place - bisect_left(self.dropped, place)


@dataclass(slots=True)
class _Lines:
    """The lines of one job so far: where its first one is, its summary if it has one, its parts."""

    place: int
    end_s: float
    summary: SwfJob | None = None
    parts: list[SwfJob] = field(default_factory=list)

    def takes(self, part: SwfJob) -> bool:
        """Return whether ``part`` belongs here, rather than to a later job with the same number."""
        goes_on = bool(self.parts) and self.parts[-1].status == _GOES_ON
        return goes_on or part.submit_s < 0 or part.submit_s <= self.end_s

    def add(self, part: SwfJob) -> None:
        self.parts.append(part)
        if part.submit_s >= 0:
            self.end_s = max(self.end_s, end_of(part))


def end_of(job: SwfJob) -> float:
    """Return the second at which ``job`` ended if it was never suspended."""
    return job.submit_s + (job.wait_s or 0) + (job.run_s or 0)


def join_parts(lines: Iterable[tuple[int, SwfJob]], earlier_end_s: Mapping[int, float]) -> JoinedParts:
    """Return how to join ``lines``, jobs with their places in the file's order.

    A part belongs to the line before it with its number. Where that job has had its last part, a part that
    was submitted after its end begins a later job. ``earlier_end_s`` has the ends of jobs without parts that
    come before ``lines``, by number. A part without submit time must have a line before it.
    """
    found = JoinedParts()
    latest: dict[int, _Lines] = {}
    joined: dict[int, _Lines] = {}
    for place, job in lines:
        number = job.job_number
        known = latest.get(number)
        if job.status not in PART_STATUSES:
            if known is None or known.summary is not None or known.parts[0].submit_s != job.submit_s:
                latest[number] = _Lines(place, end_of(job), job)
                continue
            known.summary = job
        else:
            if known is None and number in earlier_end_s:
                known = _Lines(-1, earlier_end_s[number], job)  # its summary is not here, but there is one
            if known is None or not known.takes(job):
                latest[number] = _Lines(place, end_of(job), None, [job])
                continue
            known.add(job)
        latest[number] = joined[id(known)] = known
        found.dropped.append(place)
    for known in joined.values():
        if known.place >= 0:
            found.changed[known.place] = known.summary or _whole(known.parts)
    found.jobs = len(joined)
    return found


def _whole(parts: list[SwfJob]) -> SwfJob:
    """Return the job of ``parts``: run and CPU times added, the status of the last, the rest of the first."""
    runs_s = [part.run_s for part in parts if part.run_s is not None]
    cpu_s = [part.cpu_s for part in parts if part.cpu_s is not None]
    return replace(
        parts[0],
        run_s=min(sum(runs_s), LARGEST) if runs_s else None,
        allocated_procs=max((part.allocated_procs or 0 for part in parts), default=0) or None,
        cpu_s=min(sum(cpu_s), LARGEST) if cpu_s else None,
        status=_STATUS_OF_WHOLE[parts[-1].status or _GOES_ON],
        extension=(),
    )
