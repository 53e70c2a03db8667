"""What is run and measured: mechanisms, mixes of notices, intervals between checkpoints, sharing; seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from foundation.units import US_PER_S
from simulator.experiments.claim_study import CellT, run_grid
from simulator.hybrid.drawn_jobs import MIXES, Draw, HybridJobKind, draw_lives
from simulator.hybrid.hybrid_build import Mechanism
from simulator.hybrid.hybrid_pool import HybridOutcome, run_jobs
from simulator.hybrid.hybrid_state import BASELINE, COLLECT, NOTHING, PLAN, SHARE
from simulator.model.jobs import PoolJobs
from simulator.simulation import Workload

_US_PER_H = 3.6e9
SHORT_US = 3600 * 10**6
"""An on-demand job is short up to here."""
STRATEGIES = {"N": NOTHING, "CUA": COLLECT, "CUP": PLAN}
ARRIVALS = {"PAA": False, "SPAA": True}
MECHANISMS = {
    f"{before}&{at}": Mechanism(strategy=strategy, shrinks=shrinks)
    for before, strategy in STRATEGIES.items()
    for at, shrinks in ARRIVALS.items()
}
EVEN = "W5"
OVERHEAD = Fraction(6, 5)
"""C_o of shared cores, the thesis's."""
_WEEK_US = 7 * 86_400 * US_PER_S
_WORKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredHybrid:
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


def measure(jobs: PoolJobs, nodes: int, mechanism: Mechanism, overhead: Fraction) -> MeasuredHybrid:
    """Run the jobs and return what the study asks."""
    found = run_jobs(jobs, nodes, mechanism, overhead)
    kind = found.column("kind")
    submit_us, end_us = jobs.submit_us, found.column("end_us")
    took_h = (end_us - submit_us) / _US_PER_H
    demand = kind == HybridJobKind.ON_DEMAND
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
    return MeasuredHybrid(
        turnaround=float(took_h.mean()),
        rigid=_mean(took_h, kind == HybridJobKind.RIGID),
        malleable=_mean(took_h, kind == HybridJobKind.MALLEABLE),
        on_demand=_mean(took_h, demand),
        short=_mean(slowdown, short),
        long=_mean(slowdown, demand & ~short),
        utilisation=useful / nodes / max(elapsed_us, 1),
        wasted=float(again.sum()) / float(found.column("held_node_us").sum()),
        instant=_mean(instant.astype(float), demand),
        at_once=_mean((found.column("ready_us") == submit_us).astype(float), demand),
        rigid_preempted=_mean(preempted.astype(float), kind == HybridJobKind.RIGID),
        malleable_preempted=_mean(preempted.astype(float), kind == HybridJobKind.MALLEABLE),
        full=_full(found, nodes, demand & ~instant, demand),
        cpu_s=found.engine_cpu_s,
    )


def _mean(values: npt.NDArray[np.float64], where: npt.NDArray[np.bool_]) -> float:
    return float(values[where].mean()) if where.any() else 0.0


def _full(
    found: HybridOutcome, nodes: int, missed: npt.NDArray[np.bool_], demand: npt.NDArray[np.bool_]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridEffort:
    """How much is done: checkpoint intervals in percent, weights of a job that shares, overheads.

    ``free`` are the intervals that are run once more with checkpoints that take no time.
    """

    intervals: tuple[int, ...] = (25, 50, 75, 150, 200)
    free: tuple[int, ...] = (50, 100)
    weights: tuple[int, ...] = (1, 4, 16)
    overheads: tuple[Fraction, ...] = (Fraction(1), Fraction(11, 10), OVERHEAD)


WHOLE = HybridEffort()
QUICK = HybridEffort(intervals=(50,), weights=(4,), overheads=(OVERHEAD,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Summary of the drawn jobs, for each seed.

    ``shares`` of on-demand jobs, ``dispersion`` of their number a week (variance over mean), ``empty`` weeks
    as a share of all, and the ``busiest`` week over the mean one.
    """

    shares: tuple[float, ...]
    dispersion: tuple[float, ...]
    empty: tuple[float, ...]
    busiest: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridSurvey:
    """What was measured, one value a seed in each list.

    Parameters
    ----------
    base
        FCFS and EASY alone.
    runs
        By mechanism and mix.
    intervals
        By mechanism and percent of Daly's interval, with notices of all kinds alike; 100 is in ``runs``.
    free
        By mechanism and percent of Daly's interval, with checkpoints that take no time.
    shared
        By weight and overhead, of jobs that share.
    traces
        What was drawn.
    decisions_s
        By mechanism, seconds that each event of the first seed took, pass included.
    wall_s
        Of the runs of mechanisms and mixes.
    """

    base: list[MeasuredHybrid]
    runs: Mapping[tuple[str, str], list[MeasuredHybrid]]
    intervals: Mapping[tuple[str, int], list[MeasuredHybrid]]
    free: Mapping[tuple[str, int], list[MeasuredHybrid]]
    shared: Mapping[tuple[int, Fraction], list[MeasuredHybrid]]
    traces: Traces
    decisions_s: Mapping[str, npt.NDArray[np.float64]]
    wall_s: float = field(default=0.0)

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return len(self.base)


def steps_of(seeds: int, effort: HybridEffort) -> int:
    """Return how many steps there are."""
    six = len(MECHANISMS)
    return (
        seeds * (1 + len(_sharing(effort)) + six * (len(MIXES) + len(effort.intervals) + len(effort.free)))
        + six
    )


def survey(
    workload: Workload, nodes: int, seeds: int, effort: HybridEffort, step: Callable[[str], None]
) -> HybridSurvey:
    """Run everything.

    Parameters
    ----------
    workload, nodes
        The jobs without kinds, and the machine.
    seeds
        How many; their numbers are 1, 2, ...
    effort
        How much is done.
    step
        Takes what was done, once a step.
    """
    traces: list[tuple[float, float, float, float]] = []

    def grid(
        cells: Mapping[CellT, tuple[Mechanism, Fraction]], mix: str
    ) -> dict[CellT, list[MeasuredHybrid]]:
        def draw(seed: int) -> PoolJobs:
            jobs = drawn(workload, nodes, seed, mix)
            if cells is alone:
                traces.append(_drawn_summary(jobs))
            return jobs

        return run_grid(
            cells,
            range(1, seeds + 1),
            draw,
            lambda jobs, cell, _: measure(jobs, nodes, *cells[cell]),
            step,
            workers=_WORKERS,
        )

    alone = {EVEN: (Mechanism(strategy=BASELINE), OVERHEAD)}
    base = grid(alone, EVEN)[EVEN]
    shared = grid(_sharing(effort), EVEN)
    runs: dict[tuple[str, str], list[MeasuredHybrid]] = {}
    began_s = time.perf_counter()
    for mix in MIXES:
        runs |= grid({(name, mix): (one, OVERHEAD) for name, one in MECHANISMS.items()}, mix)
    spent_s = time.perf_counter() - began_s
    shares, dispersion, empty, busiest = zip(*traces, strict=True)
    return HybridSurvey(
        base=base,
        runs=runs,
        intervals=grid(_at_intervals(effort.intervals), EVEN),
        free=grid(_at_intervals(effort.free, free=True), EVEN),
        shared=shared,
        traces=Traces(shares=shares, dispersion=dispersion, empty=empty, busiest=busiest),
        decisions_s=_decisions(workload, nodes, step),
        wall_s=spent_s,
    )


def _at_intervals(
    percents: Iterable[int], *, free: bool = False
) -> dict[tuple[str, int], tuple[Mechanism, Fraction]]:
    return {
        (name, percent): (replace(one, interval=Fraction(percent, 100), free_checkpoints=free), OVERHEAD)
        for percent in percents
        for name, one in MECHANISMS.items()
    }


def _sharing(effort: HybridEffort) -> dict[tuple[int, Fraction], tuple[Mechanism, Fraction]]:
    return {
        (weight, overhead): (Mechanism(strategy=SHARE, weight=weight), overhead)
        for weight in effort.weights
        for overhead in effort.overheads
    }


def drawn(workload: Workload, nodes: int, seed: int, mix: str) -> PoolJobs:
    """Return the jobs of a seed with notices of a mix."""
    made = draw_lives(workload, nodes, replace(Draw(), mix=mix), seed)
    return made.pool_jobs(np.arange(made.count), with_memory=False)


def _drawn_summary(jobs: PoolJobs) -> tuple[float, float, float, float]:
    demand = np.array([life.on_demand for life in jobs.lifecycles or ()])
    week = jobs.submit_us // _WEEK_US
    counts = np.bincount(week[demand], minlength=int(week.max()) + 1)
    mean = max(float(counts.mean()), 1e-9)
    return (
        float(demand.mean()),
        float(counts.var()) / mean,
        float((counts == 0).mean()),
        float(counts.max()) / mean,
    )


def _decisions(
    workload: Workload, nodes: int, step: Callable[[str], None]
) -> dict[str, npt.NDArray[np.float64]]:
    """Clock each event of the first seed, one mechanism after the other."""
    jobs = drawn(workload, nodes, 1, EVEN)
    found = {}
    for name, mechanism in MECHANISMS.items():
        step(f"decisions of {name}")
        clocked: list[float] = []
        run_jobs(jobs, nodes, mechanism, OVERHEAD, clocked=clocked)
        found[name] = np.array(clocked[1:] or clocked)
    return found
