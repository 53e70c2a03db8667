"""A trace on a far smaller cluster, job by job: every job keeps its share of the system, and its arrival.

On a few cores no job can keep its size: 12 of 144 cores are a sixth of a core of two. What can be kept is
which part of the whole system's time a job takes. So a job that becomes wider relative to its system becomes
shorter, and the offered load stays; times are then divided by the compression. Serial jobs stay serial. Jobs
that fill a node or more keep two ranks at least, or no job would have anything to coordinate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from foundation.errors import UsageError
from workloads.job_shape import job_shape
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.transforms import with_run_time

COUPLED = 2
_MINUTE_S = 60
_GENEROUS = 4


@dataclass(frozen=True, slots=True)
class Room:
    """A cluster of equal nodes, of which batch jobs may use ``batch_nodes``."""

    nodes: int
    cores: int
    batch_nodes: int

    @property
    def procs(self) -> int:
        """All cores."""
        return self.nodes * self.cores


@dataclass(frozen=True, slots=True)
class KeptShare:
    """The trace, and how many of its jobs were raised to the shortest run time."""

    trace: SwfTrace
    raised: int


def keep_shares(
    trace: SwfTrace,
    original: Room,
    room: Room,
    compression: float,
    shortest_s: float,
    interactive_queue: int = 0,
) -> KeptShare:
    """Return the trace for a smaller cluster.

    Parameters
    ----------
    trace
        Made for ``original``; interactive jobs are in ``interactive_queue``.
    original, room
        From which cluster to which. Interactive jobs get one node at most.
    compression
        What all times are divided by.
    shortest_s
        Batch jobs and interactive ones are raised to this. Requests are four times the run time and a minute,
        rounded up to whole minutes as Slurm does it: no job of seconds is to end at its limit.

    Raises
    ------
    UsageError
        The compression is not above 0, or the shortest is negative.
    """
    if not 0 < compression < math.inf or shortest_s < 0:
        raise UsageError(f"a compression of {compression:g} to at least {shortest_s:g} s is not possible")
    jobs, raised = [], 0
    for job in trace.jobs:
        is_interactive = job.queue == interactive_queue
        procs = _procs(job.procs or 1, original, room, interactive=is_interactive)
        share = (job.procs or 1) / original.procs * room.procs / procs
        run_s = (job.run_s or 0) * share / compression
        raised += run_s < shortest_s
        jobs.append(_fitted(job, procs, max(run_s, shortest_s), compression))
    note = (
        f"osub share: from N{original.nodes}C{original.cores} to N{room.nodes}C{room.cores}, each job with "
        f"its share of the system; times divided by {compression:g}; {raised} raised to {shortest_s:g} s"
    )
    header = trace.header.with_field("MaxNodes", room.nodes).with_field("MaxProcs", room.procs)
    return KeptShare(replace(trace, header=header).with_jobs(jobs, note), raised)


def _procs(procs: int, original: Room, room: Room, *, interactive: bool) -> int:
    """Return the processors of a job on the smaller cluster."""
    wanted = max(1, round(procs * room.procs / original.procs))
    if procs >= original.cores and not interactive:
        wanted = max(wanted, COUPLED)
    wanted = min(wanted, room.cores if interactive else room.batch_nodes * room.cores)
    nodes = 1 if interactive else room.batch_nodes
    return next(size for size in range(wanted, 0, -1) if job_shape(size, nodes, room.cores) is not None)


def _fitted(job: SwfJob, procs: int, run_s: float, compression: float) -> SwfJob:
    shorter = with_run_time(job, round(run_s, 3))
    limit_s = float(_MINUTE_S * (1 + math.ceil(_GENEROUS * run_s / _MINUTE_S)))
    return replace(
        shorter,
        submit_s=round(job.submit_s / compression, 3),
        allocated_procs=procs,
        requested_procs=procs if job.requested_procs is not None else None,
        requested_s=limit_s,
    )
