"""All settings of the study: three scenarios, three numbers of nodes, seeds; and worlds drawn at random.

What the three solvers answer in a setting, and how long they take for all deadlines. Response times are those
of the compiled kernels, so that they compare algorithms and not languages: one run of the dynamic programme,
and for the baselines one run for each deadline, added up. Each is the least of a few repetitions.
Backtracking is given up after a time; then its time is a lower bound.
"""

from __future__ import annotations

import math
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from simulator.eviction import EvictableJob, EvictionSolver, Question, solve
from simulator.eviction.baselines import Columns, Search, choose_greedily_for_all, search
from simulator.eviction.eviction_problem import EvictionChoice, Storage
from simulator.eviction.programme_table import ProgrammeTable, fill, job_items
from simulator.experiments import eviction_scenarios as scenarios
from simulator.experiments.claim_study import CellT, FoundT, run_grid
from simulator.experiments.eviction_scenarios import ALL_GB_S, JOBS, NEEDS, NODE_GB_S
from simulator.jit.compilation import Compiled

REPEAT = 5
_BRANCHES = 2_000_000
FILE_SYSTEMS_GB_S = (250.0, 150.0, 100.0, 60.0)
NODE_BANDWIDTHS: tuple[float | None, ...] = (0.7, 1.0, 4.0, None)
EXCEPTION, UNTIL_MIN = 2, 13
"""In scenario 3, numbered from 0, greedy's relative loss need not rise beyond 13 minutes (IV-E)."""
STORAGE = Storage(all_gb_s=ALL_GB_S, node_gb_s=NODE_GB_S)


@dataclass(frozen=True, slots=True)
class EvictionSetting:
    """A scenario, 0 to 2, and a number of nodes."""

    scenario: int
    need: int

    def __str__(self) -> str:
        return f"scenario {self.scenario + 1}, K={self.need:,}"


SETTINGS = tuple(EvictionSetting(scenario, need) for scenario in range(len(JOBS)) for need in NEEDS)
SIZES = ("jobs", "nodes", "deadline")
"""What grows in the worlds that show how the time grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEviction:
    """Losses by deadline, and seconds for all deadlines.

    Parameters
    ----------
    optimum, greedy, skipping
        Least loss by deadline; of greedy as it is, and if it passes over what does not fit.
    table_s, printed_s, whole_s, greedy_s, backtracking_s
        The programme's table, the same as it is printed (for all nodes of all jobs, one by one), the whole
        answer with everything in Python, and the baselines.
    backtracking
        Its losses, for the deadlines up to which it got.
    """

    optimum: tuple[float, ...]
    greedy: tuple[float, ...]
    skipping: tuple[float, ...]
    table_s: float
    printed_s: float
    whole_s: float
    greedy_s: float
    backtracking_s: float
    backtracking: tuple[float, ...] = field(default=())

    @property
    def ended(self) -> bool:
        """Whether backtracking got through all deadlines."""
        return len(self.backtracking) == len(self.optimum)

    @property
    def relative(self) -> tuple[float, ...]:
        """Greedy's loss beyond the optimum, by deadline."""
        return tuple(mine - best for mine, best in zip(self.greedy, self.optimum, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionEffort:
    """How much is done.

    Seconds of backtracking for a question, and for the hardest one of the first seed; random worlds;
    doublings of a size to see how the time grows.
    """

    limit_s: float
    hardest_s: float
    worlds: int
    doublings: int


WHOLE = EvictionEffort(limit_s=1.0, hardest_s=30.0, worlds=1000, doublings=4)
QUICK = EvictionEffort(limit_s=0.1, hardest_s=0.5, worlds=100, doublings=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSurvey:
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

    settings: Mapping[EvictionSetting, Sequence[MeasuredEviction]]
    bandwidths: Mapping[float | None, Sequence[tuple[float, float]]]
    slopes: Mapping[float, Mapping[EvictionSetting, Sequence[float]]]
    worlds: int
    worlds_alike: int
    needs: int
    needs_alike: int
    growth: Mapping[str, Sequence[float]]


def survey(
    theta: scenarios.Theta | None, seeds: int, effort: EvictionEffort, step: Callable[[str], None]
) -> EvictionSurvey:
    """Measure everything; ``step`` is called ``steps_of(seeds)`` times."""

    def grid(
        cells: Sequence[CellT], trial: Callable[[Questions, CellT, int], FoundT]
    ) -> Mapping[CellT, list[FoundT]]:
        return run_grid(cells, range(1, seeds + 1), lambda seed: Questions(theta, seed), trial, step)

    def measured(asked: Questions, setting: EvictionSetting, seed: int) -> MeasuredEviction:
        is_hardest = seed == 1 and setting == SETTINGS[-1]
        return measure(asked.at(STORAGE)[setting], effort.hardest_s if is_hardest else effort.limit_s)

    def at_the_end(asked: Questions, width: float | None, _: int) -> tuple[float, float]:
        ends = [_at_the_end(one) for one in asked.at(Storage(all_gb_s=ALL_GB_S, node_gb_s=width)).values()]
        return fmean(best for best, _ in ends), fmean(more for _, more in ends)

    def slopes(asked: Questions, width: float, _: int) -> dict[EvictionSetting, float]:
        questions = asked.at(Storage(all_gb_s=width, node_gb_s=NODE_GB_S))
        return {setting: slope(setting, _relative(one)) for setting, one in questions.items()}

    rising = grid(FILE_SYSTEMS_GB_S, slopes)
    alike, needs, needs_alike = _random_worlds(effort.worlds)
    step("random worlds")
    return EvictionSurvey(
        settings=grid(SETTINGS, measured),
        bandwidths=grid(NODE_BANDWIDTHS, at_the_end),
        slopes={
            width: {setting: [one[setting] for one in of] for setting in SETTINGS}
            for width, of in rising.items()
        },
        worlds=effort.worlds,
        worlds_alike=alike,
        needs=needs,
        needs_alike=needs_alike,
        growth=grid(SIZES, lambda _, size, seed: growth(seed, size, effort.doublings)),
    )


def steps_of(seeds: int) -> int:
    """Return how many trials ``survey`` has."""
    return seeds * sum(map(len, (SETTINGS, NODE_BANDWIDTHS, FILE_SYSTEMS_GB_S, SIZES))) + 1


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked with a seed."""

    theta: scenarios.Theta | None
    seed: int

    def at(self, storage: Storage) -> dict[EvictionSetting, Question]:
        """Return the question of each setting where checkpoints go to that storage."""
        found = {}
        for scenario in range(len(JOBS)):
            instant = scenarios.instant_of(self.theta, scenario, np.random.default_rng([self.seed, scenario]))
            for need in NEEDS:
                of = scenarios.question_of(instant, need, storage, [self.seed, scenario, 1])
                found[EvictionSetting(scenario, need)] = of
        return found


def _at_the_end(question: Question) -> tuple[float, float]:
    best = solve(question, every_deadline=False)[0].loss or 0.0
    return best, (solve(question, EvictionSolver.GREEDY, every_deadline=False)[0].loss or 0.0) - best


def _relative(question: Question) -> list[float]:
    pairs = zip(solve(question, EvictionSolver.GREEDY), solve(question), strict=True)
    return [(mine.loss or 0.0) - (best.loss or 0.0) for mine, best in pairs]


def slope(setting: EvictionSetting, relative: Sequence[float]) -> float:
    """Return by how much a loss rises a minute, fitted over the deadlines that V8 speaks of."""
    until = UNTIL_MIN if setting.scenario == EXCEPTION else len(relative) - 1
    return float(np.polyfit(np.arange(until + 1), relative[: until + 1], 1)[0])


def growth(seed: int, size: str, doublings: int) -> float:
    """Return by which power the time of a whole table grows with one of ``SIZES``."""
    factors = [2**power for power in range(doublings + 1)]
    times = []
    for factor in factors:
        question = _world(
            np.random.default_rng(seed),
            jobs=16 * (factor if size == "jobs" else 1),
            nodes=512 * (factor if size == "nodes" else 1),
            deadline_min=scenarios.DEADLINE_MIN * (factor if size == "deadline" else 1),
        )
        times.append(table_s(question, every_need=True))
    return float(np.polyfit(np.log(factors), np.log(times), 1)[0])


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
        found = zip(solve(question), _search(question, math.inf)[1], strict=True)
        alike += all(math.isclose(one.loss or 0.0, searched, abs_tol=1e-5) for one, searched in found)
        if seed % 20 == 0:
            whole = ProgrammeTable(question, job_items(question), every_need=True)
            for need in range(sum(job.nodes for job in question.jobs) + 1):
                needs += 1
                alone = ProgrammeTable(replace(question, need=need), job_items(question))
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


def measure(question: Question, limit_s: float) -> MeasuredEviction:
    """Solve a question three ways; backtracking gets ``limit_s`` seconds for all deadlines."""
    searched_s, found = _search(question, limit_s)
    return MeasuredEviction(
        optimum=_losses(question, EvictionSolver.OPTIMAL),
        greedy=_losses(question, EvictionSolver.GREEDY),
        skipping=_losses(question, EvictionSolver.GREEDY, skip=True),
        table_s=table_s(question),
        printed_s=table_s(_indivisible(question), every_need=True),
        whole_s=_least(lambda: solve(question)),
        greedy_s=_greedy_s(question),
        backtracking_s=searched_s,
        backtracking=found,
    )


def table_s(question: Question, *, every_need: bool = False) -> float:
    """Return the seconds in which the compiled kernel fills the table."""
    arguments = ProgrammeTable(question, job_items(question), every_need=every_need).arguments()
    compiled = Compiled(fill, arguments)
    compiled.prepare()
    return _least(lambda: compiled(*arguments))


def _indivisible(question: Question) -> Question:
    """Return the question with one more job, of one node, so that sizes have no common divisor."""
    tiny = EvictableJob(name="tiny", nodes=1, loss=1.0)
    return replace(question, jobs=[*question.jobs, tiny])


def _losses(question: Question, solver: EvictionSolver, *, skip: bool = False) -> tuple[float, ...]:
    return tuple(answer.loss or 0.0 for answer in solve(question, solver, skip=skip))


def _greedy_s(question: Question) -> float:
    columns = Columns.of(question)
    arguments = (
        columns.nodes,
        columns.losses,
        columns.app,
        columns.system,
        columns.need,
        question.steps,
        0,
        columns.buffer(),
        columns.buffer(),
    )
    compiled = Compiled(choose_greedily_for_all, arguments)
    compiled.prepare()
    # One call is too short to be timed.
    return _least(lambda: compiled(*arguments), 100)


def _search(question: Question, limit_s: float) -> tuple[float, tuple[float, ...]]:
    columns = Columns.of(question)
    compiled = Compiled(search, Search(columns, 0).arguments(1))
    compiled.prepare()
    spent_s = 0.0
    found: list[float] = []
    for step in range(question.steps + 1):
        one = Search(columns, step)
        arguments = one.arguments(_BRANCHES)
        over = 0
        while not over:
            began_s = time.perf_counter()
            over = compiled(*arguments)
            spent_s += time.perf_counter() - began_s
            if not over and spent_s > limit_s:
                return spent_s, tuple(found)
        killed = [place for place, choice in (one.result() or {}).items() if choice is EvictionChoice.KILL]
        found.append(sum(question.jobs[place].loss or 0.0 for place in killed))
    return spent_s, tuple(found)


def _least(act: Callable[[], object], calls: int = 1) -> float:
    """Return the seconds of one call where it took least."""
    return min(timeit.repeat(act, number=calls, repeat=REPEAT)) / calls
