"""What a trace of Theta says of V12 to V14: occupancy, running jobs, short jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.experiments.eviction.scenarios import LEAST_NODES, MACHINE_NODES, SHORT_S, Theta

_S_PER_DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a trace.

    ``busiest`` is the number of busy nodes that lasts longest of all but none, for ``busiest_days`` of
    ``days``; ``full_days`` is how long all nodes of the machine are busy; near capacity at most ``most_jobs``
    run, and 99% of the time no more than ``common_jobs``; ``short`` is the share of jobs under 30 minutes.
    """

    name: str
    jobs: int
    days: float
    busiest: int
    busiest_days: float
    full_days: float
    most_jobs: int
    common_jobs: int
    short: float


def facts_of(theta: Theta) -> Facts:
    """Return the facts of a trace."""
    begins, ends, busy, running = theta.occupancy()
    lasts = ends - begins
    used = np.bincount(np.maximum(busy, 0), weights=lasts)
    used[0] = 0
    busiest = int(np.argmax(used))
    near = (busy >= LEAST_NODES) & (busy <= MACHINE_NODES)
    many = np.bincount(running[near], weights=lasts[near], minlength=1)
    common = int(np.searchsorted(np.cumsum(many), 0.99 * many.sum()))
    return Facts(
        name=theta.name,
        jobs=len(theta.nodes),
        days=float(ends[-1] - begins[0]) / _S_PER_DAY,
        busiest=busiest,
        busiest_days=float(used[busiest]) / _S_PER_DAY,
        full_days=float(lasts[busy == MACHINE_NODES].sum()) / _S_PER_DAY,
        most_jobs=int(running[near].max(initial=0)),
        common_jobs=common,
        short=float((theta.run_s < SHORT_S).mean()),
    )
