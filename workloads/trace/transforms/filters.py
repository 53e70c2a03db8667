"""Which jobs of a trace to keep: by user, queue, partition, size, run time and status."""

from __future__ import annotations

from dataclasses import dataclass

from foundation.errors import UsageError
from foundation.units import counted_of
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.job_links import with_sound_links

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
