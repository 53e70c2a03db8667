"""What a node may speak of: the jobs that Slurm has put there, and no others.

A node's key is worth what its node is worth. Whoever holds it can tell lies about the jobs of that node, and
about no other: else one broken node would release jobs, or have them taken for dead, on the whole cluster.

A job that no snapshot has is not foreign: it has begun since, or ended, and nothing follows from what is said
of it but that Slurm is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

import msgspec

from gangd.core import Place
from gangd.wire import Report, SliceReport

Where = Callable[[int], Place]
"""How the node that reports stands to a job."""


def own_words(
    report: Report, where: Where, is_home: Callable[[AbstractSet[int]], bool] = lambda _: False
) -> tuple[Report, frozenset[int]]:
    """Return the report without what it says of jobs that are not there, and the foreign ones of these.

    A job that has left the node is dropped, but not foreign: the report may have been on its way. That a job
    has begun is kept whatever is known of it: all that follows is a question, and it may be a requeue. So is
    that its tasks run: it counts where Slurm says that they do, and only there.
    """
    named = _named(report)
    if is_home(named):
        return report, frozenset()
    places = {job: where(job) for job in named}
    if all(place is Place.HERE for place in places.values()):
        return report, frozenset()
    here = frozenset(job for job, place in places.items() if place in (Place.HERE, Place.UNKNOWN))
    kept = msgspec.structs.replace(
        report,
        slices=tuple([_own_slice(one, here) for one in report.slices]),
        ended=_own(report.ended, here),
        dying=_own(report.dying, here),
        alone=tuple([sample for sample in report.alone if sample.job in here]),
        found=tuple([one for one in report.found if one.job in here]),
        leaks=tuple([one for one in report.leaks if one.job in here]),
        faults=tuple([one for one in report.faults if one.job is None or one.job in here]),
    )
    return kept, frozenset(job for job, place in places.items() if place is Place.ELSEWHERE)


def _named(report: Report) -> set[int]:
    """Every job that the report says something of."""
    jobs = {*report.ended, *report.dying}
    for slice_ in report.slices:
        jobs.update(slice_.held)
        jobs.update(slice_.yielding)
        jobs.update([sample.job for sample in slice_.samples])
    jobs.update([sample.job for sample in report.alone])
    jobs.update([one.job for one in report.found])
    jobs.update([one.job for one in report.leaks])
    jobs.update([one.job for one in report.faults if one.job is not None])
    return jobs


def _own_slice(one: SliceReport, here: frozenset[int]) -> SliceReport:
    samples = tuple([sample for sample in one.samples if sample.job in here])
    return msgspec.structs.replace(
        one, held=_own(one.held, here), samples=samples, yielding=_own(one.yielding, here)
    )


def _own(jobs: Iterable[int], here: frozenset[int]) -> tuple[int, ...]:
    return tuple([job for job in jobs if job in here])
