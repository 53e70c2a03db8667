"""One run of the study, as the figures that the claims speak of."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from simulator.engine.building.build_state import PoolJobs
from simulator.hybrid.drawn_jobs import Kind
from simulator.hybrid.hybrid_build import Mechanism
from simulator.hybrid.hybrid_run import Outcome, run_jobs
from simulator.hybrid.loop.hybrid_state import BASELINE

_US_PER_H = 3.6e9
SHORT_US = 3600 * 10**6
"""An on-demand job is short up to here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of a run; turnaround in hours, the rest are shares.

    Parameters
    ----------
    turnaround, rigid, malleable, on_demand
        Mean turnaround of all jobs and of each kind.
    short, long
        Mean bounded slowdown of on-demand jobs up to an hour, and of longer ones.
    utilisation
        Useful node time over elapsed node time, from the first submission to the last end.
    wasted
        Node time that was lost, went on repeated set-up or passed in warnings, over what was held.
    instant, at_once
        On-demand jobs that had all nodes assigned, and that ran, the moment they came.
    rigid_preempted, malleable_preempted
        Jobs of the kind that were preempted at least once.
    full
        Of the on-demand jobs that were not instant those that came while on-demand jobs and they were more
        than the machine; None without such jobs.
    cpu_s
        CPU time of the run.
    """

    turnaround: float
    rigid: float
    malleable: float
    on_demand: float
    short: float
    long: float
    utilisation: float
    wasted: float
    instant: float
    at_once: float
    rigid_preempted: float
    malleable_preempted: float
    full: float | None
    cpu_s: float


def measure(jobs: PoolJobs, nodes: int, mechanism: Mechanism, overhead: Fraction) -> Measured:
    """Run the jobs and return what the study asks."""
    found = run_jobs(jobs, nodes, mechanism, overhead)
    kind = found.column("kind")
    submit_us, end_us = jobs.submit_us, found.column("end_us")
    took_h = (end_us - submit_us) / _US_PER_H
    demand = kind == Kind.ON_DEMAND
    flag = found.column("ready_us") == submit_us
    if mechanism.strategy != BASELINE:
        flag = found.column("instant") == 1
    instant = demand & flag
    slowdown = (end_us - submit_us) / np.maximum(jobs.run_us, 10 * 10**6)
    short = demand & (jobs.run_us <= SHORT_US)
    useful = float((jobs.run_us * jobs.nodes).sum())
    elapsed_us = int(end_us.max()) - int(submit_us.min())
    again = found.column("again_node_us") + found.column("lost_node_us") + found.column("warned_node_us")
    preempted = found.column("preemptions") > 0
    return Measured(
        turnaround=float(took_h.mean()),
        rigid=_mean(took_h, kind == Kind.RIGID),
        malleable=_mean(took_h, kind == Kind.MALLEABLE),
        on_demand=_mean(took_h, demand),
        short=_mean(slowdown, short),
        long=_mean(slowdown, demand & ~short),
        utilisation=useful / nodes / max(elapsed_us, 1),
        wasted=float(again.sum()) / float(found.column("held_node_us").sum()),
        instant=_mean(instant.astype(float), demand),
        at_once=_mean((found.column("ready_us") == submit_us).astype(float), demand),
        rigid_preempted=_mean(preempted.astype(float), kind == Kind.RIGID),
        malleable_preempted=_mean(preempted.astype(float), kind == Kind.MALLEABLE),
        full=_full(found, nodes, demand & ~instant, demand),
        cpu_s=found.engine_cpu_s,
    )


def _mean(values: npt.NDArray[np.float64], where: npt.NDArray[np.bool_]) -> float:
    return float(values[where].mean()) if where.any() else 0.0


def _full(
    found: Outcome, nodes: int, missed: npt.NDArray[np.bool_], demand: npt.NDArray[np.bool_]
) -> float | None:
    """Return how many of the misses came while on-demand jobs, with the new one, exceeded the machine."""
    if not missed.any():
        return None
    own = np.flatnonzero(demand)
    start_us, end_us, asked = (found.column(name)[own] for name in ("start_us", "end_us", "asked"))
    submit_us = found.column("submit_us")
    over = 0
    for place in np.flatnonzero(missed[own]).tolist():
        at_us = submit_us[own[place]]
        running = (start_us <= at_us) & (end_us > at_us)
        over += int(asked[running].sum() + asked[place] > nodes)
    return over / int(missed.sum())
