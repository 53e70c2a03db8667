"""All runs of the study: mechanisms, mixes of notices, intervals between checkpoints, sharing; seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from foundation.units import US_PER_S
from simulator.engine.building.build_state import PoolJobs
from simulator.experiments.hybrid.hybrid_measures import Measured, measure
from simulator.hybrid.drawn_jobs import MIXES, Draw, draw_lives
from simulator.hybrid.hybrid_build import Mechanism
from simulator.hybrid.hybrid_run import run_jobs
from simulator.hybrid.loop.hybrid_state import BASELINE, COLLECT, NOTHING, PLAN, SHARE
from simulator.simulation import Workload

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
KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is done: checkpoint intervals in percent, weights of a job that shares, overheads."""

    intervals: tuple[int, ...] = (25, 50, 75, 150, 200)
    weights: tuple[int, ...] = (1, 4, 16)
    overheads: tuple[Fraction, ...] = (Fraction(1), Fraction(11, 10), OVERHEAD)


WHOLE = Effort()
QUICK = Effort(intervals=(50,), weights=(4,), overheads=(OVERHEAD,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What is told of the jobs that were drawn, for each seed.

    ``shares`` of on-demand jobs, ``dispersion`` of their number a week (variance over mean), ``empty`` weeks
    as a share of all, and the ``busiest`` week over the mean one.
    """

    shares: tuple[float, ...]
    dispersion: tuple[float, ...]
    empty: tuple[float, ...]
    busiest: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was measured, one value a seed in each list.

    Parameters
    ----------
    base
        FCFS and EASY alone.
    runs
        By mechanism and mix.
    intervals
        By mechanism and percent of Daly's interval, with notices of all kinds alike; 100 is in ``runs``.
    shared
        By weight and overhead, of jobs that share.
    traces
        What was drawn.
    decisions_s
        By mechanism, seconds that each event of the first seed took, pass included.
    wall_s
        Of the runs of mechanisms and mixes.
    """

    base: list[Measured]
    runs: Mapping[tuple[str, str], list[Measured]]
    intervals: Mapping[tuple[str, int], list[Measured]]
    shared: Mapping[tuple[int, Fraction], list[Measured]]
    traces: Traces
    decisions_s: Mapping[str, npt.NDArray[np.float64]]
    wall_s: float = field(default=0.0)

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return len(self.base)


def steps_of(seeds: int, effort: Effort) -> int:
    """Return how many steps there are."""
    return seeds * (len(MIXES) + 1 + len(effort.intervals)) + len(MECHANISMS)


def survey(workload: Workload, nodes: int, seeds: int, effort: Effort, step: Callable[[str], None]) -> Survey:
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
        Told what is done next.
    """
    base, traces = [], []
    runs: dict[tuple[str, str], list[Measured]] = {}
    intervals: dict[tuple[str, int], list[Measured]] = {}
    shared: dict[tuple[int, Fraction], list[Measured]] = {}
    spent_s = 0.0
    for seed in range(1, seeds + 1):
        step(f"seed {seed}: EASY, and sharing")
        jobs = drawn(workload, nodes, seed, EVEN)
        base.append(measure(jobs, nodes, Mechanism(strategy=BASELINE), OVERHEAD))
        traces.append(_told(jobs))
        _note(shared, _all(jobs, nodes, _sharing(effort)))
        for mix in MIXES:
            step(f"seed {seed}: {mix}")
            began_s = time.perf_counter()
            announced = drawn(workload, nodes, seed, mix)
            _note(runs, _all(announced, nodes, {(name, mix): how for name, how in _six().items()}))
            spent_s += time.perf_counter() - began_s
        for percent in effort.intervals:
            step(f"seed {seed}: checkpoints at {percent}%")
            how = {(name, percent): how for name, how in _six(Fraction(percent, 100)).items()}
            _note(intervals, _all(jobs, nodes, how))
    shares, dispersion, empty, busiest = zip(*traces, strict=True)
    return Survey(
        base=base,
        runs=runs,
        intervals=intervals,
        shared=shared,
        traces=Traces(shares=shares, dispersion=dispersion, empty=empty, busiest=busiest),
        decisions_s=_decisions(workload, nodes, step),
        wall_s=spent_s,
    )


def _six(interval: Fraction = Fraction(1)) -> dict[str, tuple[Mechanism, Fraction]]:
    return {name: (replace(one, interval=interval), OVERHEAD) for name, one in MECHANISMS.items()}


def _note(lists: dict[KeyT, list[Measured]], found: Mapping[KeyT, Measured]) -> None:
    """Add what a seed came to."""
    for key, one in found.items():
        lists.setdefault(key, []).append(one)


def drawn(workload: Workload, nodes: int, seed: int, mix: str) -> PoolJobs:
    """Return the jobs of a seed with notices of a mix."""
    told = draw_lives(workload, nodes, replace(Draw(), mix=mix), seed)
    return told.pool_jobs(np.arange(told.count), with_memory=False)


def _sharing(effort: Effort) -> dict[tuple[int, Fraction], tuple[Mechanism, Fraction]]:
    return {
        (weight, overhead): (Mechanism(strategy=SHARE, weight=weight), overhead)
        for weight in effort.weights
        for overhead in effort.overheads
    }


def _all(jobs: PoolJobs, nodes: int, how: Mapping[KeyT, tuple[Mechanism, Fraction]]) -> dict[KeyT, Measured]:
    """Measure mechanisms side by side; compiled loops leave the interpreter to each other."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        found = pool.map(lambda one: measure(jobs, nodes, *one), how.values())
        return dict(zip(how, found, strict=True))


def _told(jobs: PoolJobs) -> tuple[float, float, float, float]:
    demand = np.array([life.on_demand for life in jobs.lives or ()])
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
