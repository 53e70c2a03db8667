"""Simulates windows under every strategy, share and seed, and measures each run.

Measured (sections 2.1, 2.3) are means over the jobs of a window, and the use of its nodes.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from analysis.quantiles import quantiles
from foundation.units import US_PER_S
from simulator.engine.pool_run import PoolRun
from simulator.engine.run_rules import RunRules
from simulator.experiments.claim_study import Step, run_trials
from simulator.experiments.job_windows import JobWindow
from simulator.jit.field_records import Ints
from simulator.model.system import single_queue
from simulator.placement import ThesisPlacement
from simulator.policies.policy_family import Value
from simulator.policy_registry import family_of
from simulator.sharing import Proportional
from simulator.simulation import SimulationResult, SimulationSetting, simulate
from simulator.state.lifecycle_state import BY_RESIZE

SHARES = (20, 40, 60, 80, 100)
"""Malleable jobs in percent (section 2.3)."""
STRATEGIES = ("malleable-min", "malleable-pref", "malleable-avg", "malleable-keep-pref")

SOON_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MalleableCase:
    """One simulation: policy, share of malleable jobs in percent, seed that chooses them, options."""

    policy: str
    share: int = 0
    seed: int = 1
    options: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return f"{self.policy}, {self.share}%, seed {self.seed}"


RIGID = MalleableCase(policy="easy")


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What came of a window: measures by case."""

    window: JobWindow
    by_case: Mapping[MalleableCase, Measures]
    seeds: int

    def values(self, metric: str, policy: str, share: int) -> tuple[float, ...]:
        """Return a measure for each seed; at a share of 0 it is that of rigid jobs, whatever the policy."""
        cases = [
            RIGID if share == 0 else MalleableCase(policy=policy, share=share, seed=seed)
            for seed in range(1, self.seeds + 1)
        ]
        return tuple(float(getattr(self.by_case[case], metric)) for case in cases)


def cases_of(seeds: int) -> list[MalleableCase]:
    """Return the cases of a window: rigid jobs once, for nothing is drawn then."""
    return [
        RIGID,
        *(
            MalleableCase(policy=policy, share=share, seed=seed)
            for policy in STRATEGIES
            for share in SHARES
            for seed in range(1, seeds + 1)
        ),
    ]


def run_cases(window: JobWindow, cases: Sequence[MalleableCase], step: Step) -> dict[MalleableCase, Measures]:
    """Simulate cases: the first alone, which compiles what all run, then several at a time."""
    run = functools.partial(run_case, window)
    return run_trials(cases[:1], run, step, window.name) | run_trials(
        cases[1:], run, step, window.name, workers=os.cpu_count() or 1
    )


def run_case(window: JobWindow, case: MalleableCase) -> Measures:
    """Simulate one case."""
    family = family_of(case.policy)
    values = {option.name: option.default for option in family.options} | dict(case.options)
    queues = single_queue(window.system, 1)
    workload = window.workload
    if family.prepare is not None:
        values["malleable_share"] = case.share / 100
        workload = family.prepare(workload, queues, values, case.seed)
    rules = RunRules(policy=family.make(values), placement=ThesisPlacement(), sharing=Proportional.of("1"))
    return measured(
        simulate(workload, SimulationSetting(system=window.system, queues=queues, rules=rules)), window
    )


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


def measured(result: SimulationResult, window: JobWindow) -> Measures:
    """Measure a run."""
    first_us, last_us = window.counted_us
    workload = result.workload
    counted = workload.submit_us >= first_us
    wait_s = (result.start_us - workload.submit_us)[counted] / US_PER_S
    run_s = (result.end_us - result.start_us)[counted] / US_PER_S
    turnaround_s = wait_s + run_s
    (pool,) = result.pools
    soft = np.zeros(workload.count, dtype=bool)
    if workload.lifecycles is not None:
        soft = workload.lifecycles.column(lambda life: life.sizes is not None) > 0
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
