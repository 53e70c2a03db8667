"""More interactive jobs out of a trace's batch jobs.

Source: thesis section 6.4.2: randomly chosen batch jobs of at most 12 cores and less than 10,000 s become
interactive, until there are as many as wanted (Table 6.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foundation.errors import UsageError
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.models.interactive_patterns import interactive_flags

MOST_CORES = 12
MOST_RUN_S = 10_000.0


def make_interactive(
    trace: SwfTrace,
    wanted: int,
    seed: int = 1,
    queue: int = 0,
    most_cores: int = MOST_CORES,
    most_run_s: float = MOST_RUN_S,
) -> SwfTrace:
    """Return ``trace`` with ``wanted`` interactive jobs, by moving random small batch jobs into ``queue``.

    Parameters
    ----------
    trace
        The original. Where all of its jobs are in ``queue``, none counts as interactive, and those that are
        not chosen move to the next free queue.
    wanted
        Interactive jobs in the result; a trace that has as many or more stays as it is.
    seed
        Of the choice; a larger number contains the jobs of a smaller one.
    queue
        The interactive queue.
    most_cores, most_run_s
        A batch job may be chosen with at most so many cores and a shorter run time.

    Raises
    ------
    UsageError
        There are not so many jobs to choose from.
    """
    flags = interactive_flags(trace, queue)
    missing = wanted - sum(flags)
    if missing <= 0:
        return trace
    places = [
        place
        for place, (job, flag) in enumerate(zip(trace.jobs, flags, strict=True))
        if not flag and _is_small(job, most_cores, most_run_s)
    ]
    if missing > len(places):
        raise UsageError(
            f"{trace.name} has {sum(flags)} interactive jobs and {len(places)} batch jobs of at most "
            f"{most_cores} cores and under {most_run_s:g} s: {wanted} interactive jobs cannot be reached"
        )
    chosen = set(choose(places, missing, seed))
    other = max((job.queue for job in trace.jobs if job.queue is not None), default=queue) + 1
    jobs = [
        replace(job, queue=queue)
        if place in chosen
        else replace(job, queue=other)
        if job.queue == queue and not flags[place]
        else job
        for place, job in enumerate(trace.jobs)
    ]
    note = (
        f"osub interactive: {missing} batch jobs of at most {most_cores} cores and under {most_run_s:g} s "
        f"made interactive (queue {queue}), {wanted} in all, seed {seed}"
    )
    return trace.with_jobs(jobs, note)


def choose(places: Sequence[int], count: int, seed: int) -> list[int]:
    """Return ``count`` of some places at random; those of a larger count contain those of a smaller."""
    chosen: list[int] = np.random.default_rng(seed).permutation(np.asarray(places))[:count].tolist()
    return chosen


def _is_small(job: SwfJob, most_cores: int, most_run_s: float) -> bool:
    if job.procs is None or job.run_s is None:
        return False
    return job.procs <= most_cores and job.run_s < most_run_s
