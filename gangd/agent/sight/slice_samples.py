"""Samples of the slices that ended: which job is read, and to which slice what it did belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gangd.agent.sight.job_meters import JobMeters
from gangd.agent.switching.switch_thread import Switched
from gangd.wire import JobSample
from gangd.wire.timeline import Timeline


def sample_slices(
    ended: Sequence[Switched | None],
    timeline: Timeline,
    yielding: frozenset[int],
    meters: JobMeters,
    read: Callable[[int], dict[str, int]],
    now_ns: int,
    begun_ns: int | None = None,
) -> dict[int, list[JobSample]]:
    """Read the jobs that the schedule names and that were not frozen throughout.

    What a job did while it ran goes to the last slice in which it ran, what was left to it while it yielded
    to the last one in which it was held.

    Parameters
    ----------
    ended
        Switches that began the slices, oldest first; None for a slice that nobody switched to.
    timeline
        The schedule.
    yielding
        Jobs that yield when they are held.
    meters, read
        Meters, and what reads the accounting cgroups of a job.
    begun_ns
        When the slice that runs now began; None if none does.

    Returns
    -------
    dict
        Samples by place in ``ended``.
    """
    ran: dict[int, int] = {}
    yielded: dict[int, int] = {}
    for place, switched in enumerate(ended):
        if switched is not None:
            named = timeline.jobs(switched.prepared.number)
            ran |= dict.fromkeys(named - switched.held, place)
            yielded |= dict.fromkeys(named & switched.held & yielding, place)
    samples: dict[int, list[JobSample]] = {}
    for job in sorted(ran.keys() | yielded.keys()):
        if not meters.due(job, now_ns):
            continue
        found = meters.sample(job, read(job), now_ns, begun_ns)
        if found.own is not None:
            samples.setdefault(ran.get(job, yielded.get(job, 0)), []).append(found.own)
        if found.leftover is not None:
            samples.setdefault(yielded.get(job, ran.get(job, 0)), []).append(found.leftover)
    return samples
