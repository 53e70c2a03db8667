"""All settings of the study: three scenarios, three numbers of nodes, seeds; and worlds drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.eviction import EvictableJob, Question, Solver, solve
from simulator.eviction.checkpoint_costs import Storage
from simulator.eviction.programme_items import job_items
from simulator.eviction.programme_table import Table
from simulator.experiments.eviction.scenarios import (
    ALL_GB_S,
    DEADLINE_MIN,
    JOBS,
    NEEDS,
    NODE_GB_S,
    Theta,
    instant_of,
    question_of,
)
from simulator.experiments.eviction.solver_measures import Measured, losses_by_search, measure, table_s

FILE_SYSTEMS_GB_S = (250.0, 150.0, 100.0, 60.0)
NODE_BANDWIDTHS: tuple[float | None, ...] = (0.7, 1.0, 4.0, None)
EXCEPTION, UNTIL_MIN = 2, 13
"""In scenario 3, numbered from 0, greedy's relative loss need not rise beyond 13 minutes (IV-E)."""
STORAGE = Storage(all_gb_s=ALL_GB_S, node_gb_s=NODE_GB_S)


@dataclass(frozen=True, slots=True)
class Setting:
    """A scenario, 0 to 2, and a number of nodes."""

    scenario: int
    need: int

    def __str__(self) -> str:
        return f"scenario {self.scenario + 1}, K={self.need:,}"


SETTINGS = tuple(Setting(scenario, need) for scenario in range(len(JOBS)) for need in NEEDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is done.

    Seconds of backtracking for a question, and for the hardest one of the first seed; random worlds;
    doublings of a size to see how the time grows.
    """

    limit_s: float
    hardest_s: float
    worlds: int
    doublings: int


WHOLE = Effort(limit_s=1.0, hardest_s=30.0, worlds=1000, doublings=4)
QUICK = Effort(limit_s=0.1, hardest_s=0.5, worlds=100, doublings=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was measured.

    Parameters
    ----------
    settings
        For each setting one measurement a seed.
    bandwidths
        By bandwidth of a node: (optimum, greedy's relative loss) at the last deadline, a mean over the
        settings for each seed.
    slopes
        By bandwidth of the file system and by setting: by how many node-hours a minute greedy's relative loss
        rises over the deadlines, for each seed.
    worlds, worlds_alike
        Random worlds, and those in which programme and backtracking lose the same at every deadline.
    needs, needs_alike
        Questions with another K put to a whole table, and those answered as by a table of their own.
    growth
        By what grows (jobs, nodes, deadline): the exponent of the time, for each seed.
    """

    settings: Mapping[Setting, Sequence[Measured]]
    bandwidths: Mapping[float | None, Sequence[tuple[float, float]]]
    slopes: Mapping[float, Mapping[Setting, Sequence[float]]]
    worlds: int
    worlds_alike: int
    needs: int
    needs_alike: int
    growth: Mapping[str, Sequence[float]]


def survey(theta: Theta | None, seeds: int, effort: Effort, step: Callable[[str], None]) -> Survey:
    """Measure everything; ``step`` is told ``steps_of(seeds)`` times what comes next."""
    measured: dict[Setting, list[Measured]] = {setting: [] for setting in SETTINGS}
    bandwidths: dict[float | None, list[tuple[float, float]]] = {width: [] for width in NODE_BANDWIDTHS}
    slopes: dict[float, dict[Setting, list[float]]] = {
        width: {setting: [] for setting in SETTINGS} for width in FILE_SYSTEMS_GB_S
    }
    growth: dict[str, list[float]] = {"jobs": [], "nodes": [], "deadline": []}
    for seed in range(1, seeds + 1):
        step(f"seed {seed}")
        for setting, question in _questions(theta, seed, STORAGE):
            is_hardest = seed == 1 and setting == SETTINGS[-1]
            limit_s = effort.hardest_s if is_hardest else effort.limit_s
            measured[setting].append(measure(question, limit_s))
        for width in NODE_BANDWIDTHS:
            storage = Storage(all_gb_s=ALL_GB_S, node_gb_s=width)
            ends = [_at_the_end(question) for _, question in _questions(theta, seed, storage)]
            bandwidths[width].append((_mean(best for best, _ in ends), _mean(more for _, more in ends)))
        for width in FILE_SYSTEMS_GB_S:
            storage = Storage(all_gb_s=width, node_gb_s=NODE_GB_S)
            for setting, question in _questions(theta, seed, storage):
                slopes[width][setting].append(slope(setting, _relative(question)))
        for name, exponent in _growth(seed, effort.doublings):
            growth[name].append(exponent)
    step("random worlds")
    alike, needs, needs_alike = _random_worlds(effort.worlds)
    return Survey(
        settings=measured,
        bandwidths=bandwidths,
        slopes=slopes,
        worlds=effort.worlds,
        worlds_alike=alike,
        needs=needs,
        needs_alike=needs_alike,
        growth=growth,
    )


def steps_of(seeds: int) -> int:
    """Return how often ``survey`` tells what comes next."""
    return seeds + 1


def _questions(theta: Theta | None, seed: int, storage: Storage) -> Iterator[tuple[Setting, Question]]:
    for scenario in range(len(JOBS)):
        instant = instant_of(theta, scenario, np.random.default_rng([seed, scenario]))
        for need in NEEDS:
            yield Setting(scenario, need), question_of(instant, need, storage, [seed, scenario, 1])


def _at_the_end(question: Question) -> tuple[float, float]:
    best = solve(question, every_deadline=False)[0].loss or 0.0
    return best, (solve(question, Solver.GREEDY, every_deadline=False)[0].loss or 0.0) - best


def _relative(question: Question) -> list[float]:
    pairs = zip(solve(question, Solver.GREEDY), solve(question), strict=True)
    return [(mine.loss or 0.0) - (best.loss or 0.0) for mine, best in pairs]


def slope(setting: Setting, relative: Sequence[float]) -> float:
    """Return by how much a loss rises a minute, fitted over the deadlines that V8 speaks of."""
    until = UNTIL_MIN if setting.scenario == EXCEPTION else len(relative) - 1
    return float(np.polyfit(np.arange(until + 1), relative[: until + 1], 1)[0])


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def _growth(seed: int, doublings: int) -> Iterator[tuple[str, float]]:
    """Yield by which power the time of a whole table grows with jobs, nodes and deadline."""
    factors = [2**power for power in range(doublings + 1)]
    for name in ("jobs", "nodes", "deadline"):
        times = []
        for factor in factors:
            question = _world(
                np.random.default_rng(seed),
                jobs=16 * (factor if name == "jobs" else 1),
                nodes=512 * (factor if name == "nodes" else 1),
                deadline_min=DEADLINE_MIN * (factor if name == "deadline" else 1),
            )
            times.append(table_s(question, every_need=True))
        yield name, float(np.polyfit(np.log(factors), np.log(times), 1)[0])


def _world(rng: np.random.Generator, jobs: int, nodes: int, deadline_min: int) -> Question:
    """Return a question of jobs whose sizes add up to about ``nodes`` and have no common divisor."""
    sizes = np.full(jobs, nodes // jobs)
    sizes[0] += 1
    listed = [
        EvictableJob(
            name=str(number),
            nodes=int(sizes[number]),
            loss=float(rng.uniform(0, 100)),
            ts_min=float(rng.uniform(0, 5)),
            ta_min=float(rng.uniform(0, 5)),
        )
        for number in range(jobs)
    ]
    return Question(jobs=listed, need=1, deadline_min=deadline_min)


def _random_worlds(count: int) -> tuple[int, int, int]:
    """Return how many worlds all solvers agree on, and how many questions of other K, and those alike."""
    alike = needs = needs_alike = 0
    for seed in range(count):
        question = _random_world(np.random.default_rng([seed, 7]))
        found = zip(solve(question), losses_by_search(question), strict=True)
        alike += all(math.isclose(one.loss or 0.0, searched, abs_tol=1e-5) for one, searched in found)
        if seed % 20 == 0:
            whole = Table(question, job_items(question), every_need=True)
            for need in range(sum(job.nodes for job in question.jobs) + 1):
                needs += 1
                alone = Table(replace(question, need=need), job_items(question))
                needs_alike += whole.by_deadline(need) == alone.by_deadline()
    return alike, needs, needs_alike


def _random_world(rng: np.random.Generator) -> Question:
    """Return a question of 1 to 12 jobs of 1 to 64 nodes, and a deadline of 1 to 15 minutes."""
    jobs = [
        EvictableJob(
            name=str(number),
            nodes=int(rng.integers(1, 65)),
            loss=float(rng.uniform(0, 64)),
            ts_min=float(rng.uniform(0, 10)),
            ta_min=float(rng.uniform(0, 20)),
        )
        for number in range(int(rng.integers(1, 13)))
    ]
    held = sum(job.nodes for job in jobs)
    return Question(jobs=jobs, need=int(rng.integers(0, held + 1)), deadline_min=int(rng.integers(1, 16)))
