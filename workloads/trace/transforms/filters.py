"""Jobs of a trace selected and tagged, and several traces merged into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from foundation.errors import UsageError
from foundation.units import counted, counted_of
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.local_clock import to_ms, to_s


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
        shift = dict.fromkeys(_IDENTIFIERS, 0) if same_users else _largest(jobs)
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


_IDENTIFIERS = ("user", "group", "executable")


def _largest(jobs: Sequence[SwfJob]) -> dict[str, int]:
    return {name: max((getattr(job, name) or 0 for job in jobs), default=0) for name in _IDENTIFIERS}


def _fitted(jobs: Sequence[SwfJob], ahead_ms: int, shift: Mapping[str, int], taken: set[int]) -> list[SwfJob]:
    """Return ``jobs`` moved in time, with numbers that are not taken, and identifiers shifted."""
    following = max((*taken, *(job.job_number for job in jobs)), default=0) + 1
    renamed: dict[int, int] = {}
    for job in jobs:
        if job.job_number in taken and job.job_number not in renamed:
            renamed[job.job_number] = following
            following += 1
    if not renamed and not ahead_ms and not any(shift.values()):
        return list(jobs)
    return [
        replace(
            job,
            job_number=renamed.get(job.job_number, job.job_number),
            submit_s=to_s(to_ms(job.submit_s) + ahead_ms) if ahead_ms else job.submit_s,
            preceding_job=None
            if job.preceding_job is None
            else renamed.get(job.preceding_job, job.preceding_job),
            **_shifted(job, shift),
        )
        for job in jobs
    ]


def _shifted(job: SwfJob, shift: Mapping[str, int]) -> dict[str, Any]:
    known = {name: getattr(job, name) for name in _IDENTIFIERS}
    return {name: number + shift[name] for name, number in known.items() if number is not None}


def with_sound_links(jobs: Iterable[SwfJob]) -> list[SwfJob]:
    """Return ``jobs`` without the links to preceding jobs that are not among them."""
    kept = list(jobs)
    present = {job.job_number for job in kept}
    return [
        job
        if job.preceding_job is None or job.preceding_job in present
        else replace(job, preceding_job=None, think_s=None)
        for job in kept
    ]


Numbers = frozenset[int] | None


@dataclass(frozen=True, slots=True)
class Selection:
    """A description of jobs; a field that is ``None`` asks for nothing.

    A job that does not know a field (-1 in the file) is not among those with a wanted number, and is
    not kept out by an unwanted one.

    Parameters
    ----------
    users, queues, partitions, statuses
        Only jobs with one of these numbers.
    not_users, not_queues
        No jobs with one of these numbers.
    least_procs, most_procs
        Bounds of the size, inclusive.
    shortest_s, longest_s
        Bounds of the run time, inclusive.
    """

    users: Numbers = None
    not_users: Numbers = None
    queues: Numbers = None
    not_queues: Numbers = None
    partitions: Numbers = None
    statuses: Numbers = None
    least_procs: int | None = None
    most_procs: int | None = None
    shortest_s: float | None = None
    longest_s: float | None = None

    def holds(self, job: SwfJob) -> bool:
        """Return whether ``job`` fits the description."""
        return (
            _among(job.user, self.users)
            and _among(job.queue, self.queues)
            and _among(job.partition, self.partitions)
            and _among(job.status, self.statuses)
            and not (self.not_users and job.user in self.not_users)
            and not (self.not_queues and job.queue in self.not_queues)
            and _between(job.procs, self.least_procs, self.most_procs)
            and _between(job.run_s, self.shortest_s, self.longest_s)
        )

    @property
    def words(self) -> str:
        """The description for people; empty where everything fits."""
        parts = [
            _listed("users", self.users),
            _listed("not users", self.not_users),
            _listed("queues", self.queues),
            _listed("not queues", self.not_queues),
            _listed("partitions", self.partitions),
            _listed("statuses", self.statuses),
            _bounds("processors", self.least_procs, self.most_procs),
            _bounds("run time in s", self.shortest_s, self.longest_s),
        ]
        return ", ".join(part for part in parts if part)


def select_jobs(trace: SwfTrace, selection: Selection) -> SwfTrace:
    """Return the jobs that ``selection`` describes; links to others are dropped.

    Raises
    ------
    UsageError
        No job is left.
    """
    if not selection.words:
        return trace
    kept = [job for job in trace.jobs if selection.holds(job)]
    if not kept:
        raise UsageError(f"no job of {trace.name} is left with {selection.words}: ask for less")
    note = f"osub select: {counted_of(len(kept), len(trace.jobs), 'job')}, {selection.words}"
    return trace.with_jobs(with_sound_links(kept), note)


def _among(number: int | None, wanted: Numbers) -> bool:
    return wanted is None or number in wanted


def _between(value: float | None, least: float | None, most: float | None) -> bool:
    if least is None and most is None:
        return True
    return value is not None and (least is None or value >= least) and (most is None or value <= most)


def _listed(name: str, numbers: Numbers) -> str:
    return "" if numbers is None else f"{name} {' '.join(map(str, sorted(numbers)))}"


def _bounds(name: str, least: float | None, most: float | None) -> str:
    if least is None and most is None:
        return ""
    return f"{name} {'' if least is None else f'{least:g}'}..{'' if most is None else f'{most:g}'}"


class TagField(StrEnum):
    """The field that carries the tag, as ``SwfJob`` calls it."""

    QUEUE = "queue"
    PARTITION = "partition"
    GROUP = "group"
    EXECUTABLE = "executable"


class DrawBy(StrEnum):
    """Whether single jobs are drawn, or users with all of their jobs."""

    JOB = "job"
    USER = "user"


def tag_jobs(
    trace: SwfTrace,
    field: TagField,
    number: int,
    share: float = 1.0,
    seed: int = 1,
    among: Selection = Selection(),
    by: DrawBy = DrawBy.JOB,
    name: str | None = None,
) -> SwfTrace:
    """Return ``trace`` with ``number`` in ``field`` of a random ``share`` of the jobs of ``among``.

    Parameters
    ----------
    trace
        The original.
    field, number
        The tag.
    share
        Of the jobs; by user, of the users (at least one for a share above 0).
    seed
        Of the choice. A larger share contains a smaller one's jobs.
    among
        Which jobs may be tagged.
    by
        What is drawn. By user, jobs without a user are not tagged.
    name
        Of the class: a Queue or Partition line in the header.

    Raises
    ------
    UsageError
        A number is out of range, or no job fits ``among``.
    """
    if not 0 <= share <= 1 or number < 0:
        raise UsageError("tagging needs a share of 0 to 1 and a number of 0 or more")
    places = [place for place, job in enumerate(trace.jobs) if among.holds(job)]
    rng = np.random.default_rng(seed)
    if by is DrawBy.USER:
        users = sorted({user for place in places if (user := trace.jobs[place].user) is not None})
        if not users:
            raise UsageError(f"no job of {trace.name} that may be tagged has a user: draw by job")
        wanted = max(1, round(share * len(users))) if share else 0
        drawn = {users[index] for index in rng.permutation(len(users))[:wanted].tolist()}
        chosen = {place for place in places if trace.jobs[place].user in drawn}
        what = f"all of {counted(len(drawn), 'user')}"
    else:
        if not places:
            raise UsageError(f"no job of {trace.name} may be tagged: {among.words}")
        order = rng.permutation(len(places)).tolist()
        chosen = {places[index] for index in order[: round(share * len(places))]}
        what = f"share {share:g}"
    tag: dict[str, Any] = {field.value: number}
    jobs = [replace(job, **tag) if place in chosen else job for place, job in enumerate(trace.jobs)]
    words = f" among {among.words}" if among.words else ""
    note = f"osub tag: {field} {number} for {counted(len(chosen), 'job')}, {what}{words}, seed {seed}"
    tagged = trace.with_jobs(jobs, note)
    line = {TagField.QUEUE: "Queue", TagField.PARTITION: "Partition"}.get(field)
    if name is None or line is None:
        return tagged
    return replace(tagged, header=tagged.header.with_line(line, f"{number} {name}"))
