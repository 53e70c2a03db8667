"""What is measured of a run (sections 2.1, 2.3): means over the jobs of a window, and use of its nodes."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from analysis.quantiles import quantiles
from foundation.units import US_PER_S
from simulator.engine.kernels.field_records import Ints
from simulator.engine.run import PoolRun
from simulator.engine.state.life_state import BY_RESIZE
from simulator.experiments.malleable.job_windows import Window
from simulator.simulation import Result

SOON_S = 1.0


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """A run in figures: of the jobs that were submitted after the warm-up, each to its end.

    Operations are changes of a job's size at an instant; they are counted for a malleable job.
    """

    turnaround_s: float
    wait_s: float
    run_s: float
    utilisation: Annotated[float, "share of the nodes in use from the warm-up to the last submission"]
    expansions: float
    shrinks: float
    soon: Annotated[float, "share of the jobs that wait less than SOON_S"]
    turnaround_low_s: Annotated[float, "lower quartile over the jobs"]
    turnaround_high_s: Annotated[float, "upper quartile over the jobs"]


def measured(result: Result, window: Window) -> Measures:
    """Measure a run."""
    first_us, last_us = window.counted_us
    workload = result.workload
    counted = workload.submit_us >= first_us
    wait_s = (result.start_us - workload.submit_us)[counted] / US_PER_S
    run_s = (result.end_us - result.start_us)[counted] / US_PER_S
    turnaround_s = wait_s + run_s
    (pool,) = result.pools
    soft = np.zeros(workload.count, dtype=bool)
    if workload.lives is not None:
        soft = workload.lives.column(lambda life: life.sizes is not None) > 0
    expansions, shrinks = operations(pool.run)
    of = counted & soft
    low, high = quantiles(turnaround_s, (0.25, 0.75))
    return Measures(
        turnaround_s=float(turnaround_s.mean()),
        wait_s=float(wait_s.mean()),
        run_s=float(run_s.mean()),
        utilisation=held_us(pool.run, first_us, last_us) / (last_us - first_us) / window.system.nodes,
        expansions=float(expansions[of].mean()) if of.any() else 0.0,
        shrinks=float(shrinks[of].mean()) if of.any() else 0.0,
        soon=float((wait_s < SOON_S).mean()),
        turnaround_low_s=float(low),
        turnaround_high_s=float(high),
    )


def operations(run: PoolRun) -> tuple[Ints, Ints]:
    """Return how often each job got more nodes, and fewer."""
    more, fewer = np.zeros((2, len(run.start_us)), dtype=np.int64)
    held = run.stretches
    if held is None or not len(held):
        return more, fewer
    order = np.argsort(held.job, kind="stable")
    job, nodes = held.job[order], held.nodes[order]
    resized = (job[1:] == job[:-1]) & (held.why[order][1:] == BY_RESIZE)
    for counts, changed in ((more, nodes[1:] > nodes[:-1]), (fewer, nodes[1:] < nodes[:-1])):
        np.add.at(counts, job[1:][resized & changed], 1)
    return more, fewer


def held_us(run: PoolRun, first_us: int, last_us: int) -> int:
    """Return the node microseconds that jobs held between two instants."""

    def within(from_us: Ints, to_us: Ints, nodes: Ints) -> int:
        span_us = np.clip(to_us, first_us, last_us) - np.clip(from_us, first_us, last_us)
        return int((span_us * nodes).sum())

    held = run.stretches
    once = np.ones(len(run.start_us), dtype=bool)
    if held is not None:
        once[held.job] = False
    nodes = run.places.nodes[once]
    total = within(run.start_us[once], run.end_us[once], nodes)
    return total if held is None else total + within(held.from_us, held.to_us, held.nodes)
