"""Simulates windows under every strategy, share and seed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from simulator.engine.run import Rules
from simulator.experiments.malleable.job_windows import Window
from simulator.experiments.malleable.malleable_measures import Measures, measured
from simulator.placement import ThesisPlacement
from simulator.policies.policy_family import Value
from simulator.policy_registry import family_of
from simulator.sharing import Proportional
from simulator.simulation import Setting, simulate
from simulator.world import single_queue

SHARES = (20, 40, 60, 80, 100)
"""Malleable jobs in percent (section 2.3)."""
STRATEGIES = ("malleable-min", "malleable-pref", "malleable-avg", "malleable-keep-pref")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One simulation: policy, share of malleable jobs in percent, seed that chooses them, options."""

    policy: str
    share: int = 0
    seed: int = 1
    options: tuple[tuple[str, Value], ...] = ()


RIGID = Case(policy="easy")


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What came of a window: measures by case."""

    window: Window
    by_case: Mapping[Case, Measures]
    seeds: int

    def values(self, metric: str, policy: str, share: int) -> tuple[float, ...]:
        """Return a measure for each seed; at a share of 0 it is that of rigid jobs, whatever the policy."""
        cases = [
            RIGID if share == 0 else Case(policy=policy, share=share, seed=seed)
            for seed in range(1, self.seeds + 1)
        ]
        return tuple(float(getattr(self.by_case[case], metric)) for case in cases)


def cases_of(seeds: int, shares: Sequence[int] = SHARES) -> list[Case]:
    """Return the cases of a window: rigid jobs once, for nothing is drawn then."""
    return [
        RIGID,
        *(
            Case(policy=policy, share=share, seed=seed)
            for policy in STRATEGIES
            for share in shares
            for seed in range(1, seeds + 1)
        ),
    ]


def run_cases(window: Window, cases: Sequence[Case], done: Callable[[str], None]) -> dict[Case, Measures]:
    """Simulate cases, several at a time; ``done`` is told the name of each."""
    first, *rest = cases
    found = {first: run_case(window, first)}
    done(window.name)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # kernels leave the interpreter to others
        for case, measures in zip(rest, pool.map(lambda case: run_case(window, case), rest), strict=True):
            found[case] = measures
            done(window.name)
    return found


def run_case(window: Window, case: Case) -> Measures:
    """Simulate one case."""
    family = family_of(case.policy)
    values = {option.name: option.default for option in family.options} | dict(case.options)
    queues = single_queue(window.system, 1)
    workload = window.workload
    if family.prepare is not None:
        values["malleable_share"] = case.share / 100
        workload = family.prepare(workload, queues, values, case.seed)
    rules = Rules(policy=family.make(values), placement=ThesisPlacement(), sharing=Proportional.of("1"))
    return measured(simulate(workload, Setting(system=window.system, queues=queues, rules=rules)), window)
