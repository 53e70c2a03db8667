"""How late a job may end for the sake of reservations: maintenance, and nodes that somebody waits for.

Slurm lets an operator move the end of a running job to any instant, into a reservation too, and then starts
nothing there until the job is over. So an end that is moved stops where the first reservation of one of the
job's nodes begins. A job that runs in a reservation may use that one up.
"""

from __future__ import annotations

from collections.abc import Iterable

from foundation.slurm import Job, Reservation


def latest_end(job: Job, reservations: Iterable[Reservation]) -> float | None:
    """Return the wall-clock instant beyond which a job's end must not be moved, seconds; None for none."""
    nodes = frozenset(job.nodes)
    bounds = [
        one.end_s if one.name == job.reservation else one.start_s
        for one in reservations
        if one.name == job.reservation or nodes & one.nodes
    ]
    return float(min(bounds)) if bounds else None
