"""CPU-hours that jobs ran and were held for, summed from the slice record: by job, by user, by account.

Slurm bills the time from a job's start to its end, held or not. The record has a row for each job, node and
slice, and says once whose a job is and how many cores it has there; a slice of a row is so many CPU-seconds.
What a job that yields got of its slice while it was held was left to it by the owners: it counts as run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from foundation.records import SliceRecord
from gangd.controller.slice_record.slicelog import Whose

_HELD = ("held", "leftover")


@dataclass(slots=True)
class Hours:
    """A sum, in CPU-seconds.

    Attributes
    ----------
    name
        A job's id, a user's or an account's name; None for an account that Slurm does not tell.
    jobs
        Jobs in it.
    ran_s
        Cores times the time for which they were the job's.
    held_s
        Cores times the time for which it was held, less what it got of them nevertheless.
    """

    name: int | str | None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    jobs: set[int] = field(default_factory=set)
    ran_s: float = 0.0
    held_s: float = 0.0

    @property
    def held_share(self) -> float:
        """Share of the time in turns for which it was held."""
        whole_s = self.ran_s + self.held_s
        return self.held_s / whole_s if whole_s else 0.0


def hours_by_job(rows: Iterable[tuple[SliceRecord, Whose | None]]) -> tuple[dict[int, Hours], frozenset[int]]:
    """Return the sums by job, and the jobs of which the record does not say whose they are: these have none.

    Parameters
    ----------
    rows
        Rows of the slice record, each with what the record says of its job.
    """
    found: dict[int, Hours] = {}
    unknown: set[int] = set()
    for row, whose in rows:
        cores = None if whose is None else whose.cores.get(row.node)
        if whose is None or cores is None:
            unknown.add(row.job)
            continue
        sum_ = found.get(row.job)
        if sum_ is None:
            sum_ = Hours(row.job, whose.user, whose.account, whose.partition, {row.job})
            found[row.job] = sum_
        whole_s = cores * row.length_s
        got_s = whole_s
        if row.role in _HELD:
            got_s = min(row.cpu_s or 0.0, whole_s) if row.role == "leftover" else 0.0
        sum_.ran_s += got_s
        sum_.held_s += whole_s - got_s
    return found, frozenset(unknown - found.keys())


def summed(jobs: Iterable[Hours], name: Callable[[Hours], str | None]) -> list[Hours]:
    """Return sums of jobs by another name, those who were held most first."""
    found: dict[str | None, Hours] = {}
    for one in jobs:
        sum_ = found.setdefault(name(one), Hours(name(one)))
        sum_.jobs |= one.jobs
        sum_.ran_s += one.ran_s
        sum_.held_s += one.held_s
    return sorted(found.values(), key=lambda sum_: -sum_.held_s)
