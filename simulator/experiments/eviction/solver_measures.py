"""What the three solvers answer in a setting, and how long they take for all deadlines.

Response times are those of the compiled kernels, so that they compare algorithms and not languages: one run
of the dynamic programme, and for the baselines one run for each deadline, added up. Each is the least of a
few repetitions. Backtracking is given up after a time; then its time is a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from simulator.engine.kernels.compilation import Compiled
from simulator.eviction import EvictableJob, Question, Solver, solve
from simulator.eviction.backtracking import Search, search
from simulator.eviction.eviction_problem import Choice
from simulator.eviction.greedy import Columns, choose_greedily_for_all
from simulator.eviction.programme_items import job_items
from simulator.eviction.programme_table import Table, fill

REPEAT = 5
_BRANCHES = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
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


def measure(question: Question, limit_s: float) -> Measured:
    """Solve a question three ways; backtracking gets ``limit_s`` seconds for all deadlines."""
    searched_s, found = _search(question, limit_s)
    return Measured(
        optimum=_losses(question, Solver.OPTIMAL),
        greedy=_losses(question, Solver.GREEDY),
        skipping=_losses(question, Solver.GREEDY, skip=True),
        table_s=table_s(question),
        printed_s=table_s(_indivisible(question), every_need=True),
        whole_s=_least(lambda: solve(question)),
        greedy_s=_greedy_s(question),
        backtracking_s=searched_s,
        backtracking=found,
    )


def table_s(question: Question, *, every_need: bool = False) -> float:
    """Return the seconds in which the compiled kernel fills the table."""
    arguments = Table(question, job_items(question), every_need=every_need).arguments()
    compiled = Compiled(fill, arguments)
    compiled.prepare()
    return _least(lambda: compiled(*arguments))


def _indivisible(question: Question) -> Question:
    """Return the question with one more job, of one node, so that sizes have no common divisor."""
    tiny = EvictableJob(name="tiny", nodes=1, loss=1.0)
    return replace(question, jobs=[*question.jobs, tiny])


def losses_by_search(question: Question) -> tuple[float, ...]:
    """Return backtracking's losses for all deadlines."""
    return _search(question, float("inf"))[1]


def _losses(question: Question, solver: Solver, *, skip: bool = False) -> tuple[float, ...]:
    return tuple(answer.loss or 0.0 for answer in solve(question, solver, skip=skip))


def _greedy_s(question: Question) -> float:
    columns = Columns(question)
    arguments = (
        columns.nodes,
        columns.losses,
        columns.app,
        columns.system,
        columns.need,
        question.steps,
        0,
        columns.room(),
        columns.room(),
    )
    compiled = Compiled(choose_greedily_for_all, arguments)
    compiled.prepare()
    # One call is too short to be timed.
    return _least(lambda: [compiled(*arguments) for _ in range(100)]) / 100


def _search(question: Question, limit_s: float) -> tuple[float, tuple[float, ...]]:
    columns = Columns(question)
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
        killed = [place for place, choice in (one.result() or {}).items() if choice is Choice.KILL]
        found.append(sum(question.jobs[place].loss or 0.0 for place in killed))
    return spent_s, tuple(found)


def _least(act: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(REPEAT):
        began_s = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - began_s)
    return best
