"""CoSim's baselines (section IV-C), greedy and exhaustive, as kernels.

CoSim's greedy baseline (section IV-C): checkpoint what is dear, then kill what is cheap, for one deadline.

Jobs are taken by descending loss. Each is checkpointed by the faster of its two methods while the summed time
stays within the deadline; the first that does not fit ends this. Then jobs are killed from the other end, of
least loss first. It stops as soon as K nodes are free.

CoSim's exhaustive baseline (section IV-C): every choice for every job, pruned by loss; one run a deadline.

A branch is given up when its loss reaches the best so far, so of several best answers the first is found. The
search is depth first and keeps its place in arrays: it is done some hundred thousand branches at a time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from foundation.errors import UsageError
from foundation.units import counted
from simulator.eviction.eviction_problem import EvictionChoice, Question, whole_losses
from simulator.jit.compilation import Compilation, Compiled, compilation_wanted, kernel
from simulator.jit.field_records import Ints


def run(function: Callable[..., Any], is_small: bool, *arguments: object) -> Any:
    """Call a kernel: plain if nothing is to be compiled, or if it is small and not compiled yet."""
    wanted = compilation_wanted()
    may_wait = wanted is Compilation.WHEN_IT_PAYS and is_small
    if wanted is Compilation.NEVER or (may_wait and "numba" not in sys.modules):
        return function(*arguments)
    compiled = Compiled(function, arguments)
    if may_wait and not compiled.is_ready:
        return function(*arguments)
    compiled.prepare()
    return compiled(*arguments)


KEEP, KILLED, BY_APP, BY_SYSTEM = 0, 1, 2, 3
CHOICES = {KILLED: EvictionChoice.KILL, BY_APP: EvictionChoice.APP, BY_SYSTEM: EvictionChoice.SYSTEM}
NEVER = -1
"""The loss of a job that may not be killed, and the time of a checkpoint that there isn't."""
_SMALL_JOBS = 500


@kernel
def by_descending_loss(losses: Ints, order: Ints) -> None:
    """Put the jobs' places into ``order``, those of greatest loss first, equal ones as they come."""
    for place in range(len(losses)):
        at = place
        while at > 0 and losses[order[at - 1]] < losses[place]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = place


@kernel
def choose_greedily(
    nodes: Ints,
    losses: Ints,
    app: Ints,
    system: Ints,
    need: int,
    deadline: int,
    skip: int,
    order: Ints,
    choices: Ints,
) -> int:
    """Choose for one deadline and return the nodes that are freed.

    Parameters
    ----------
    nodes, losses, app, system
        Of each job; ``NEVER`` for what cannot be.
    need, deadline
        K, and the deadline in steps.
    skip
        1: a job whose checkpoint does not fit is passed over; 0: it ends checkpointing.
    order
        The jobs' places, those of greatest loss first.
    choices
        Buffer for the fate of each job.
    """
    freed, spent = 0, 0
    for place in range(len(nodes)):
        choices[place] = KEEP
    for at in range(len(nodes)):
        job = order[at]
        if freed >= need:
            break
        kind, time = BY_APP, app[job]
        if time == NEVER or (system[job] != NEVER and system[job] < time):
            kind, time = BY_SYSTEM, system[job]
        if time == NEVER:
            continue
        if spent + time > deadline:
            if skip == 1:
                continue
            break
        choices[job] = kind
        freed += nodes[job]
        spent += time
    for at in range(len(nodes) - 1, -1, -1):
        job = order[at]
        if freed >= need:
            break
        if choices[job] == KEEP and losses[job] != NEVER:
            choices[job] = KILLED
            freed += nodes[job]
    return freed


@kernel
def choose_greedily_for_all(
    nodes: Ints,
    losses: Ints,
    app: Ints,
    system: Ints,
    need: int,
    deadline: int,
    skip: int,
    order: Ints,
    choices: Ints,
) -> int:
    """Choose for every deadline from 0 on, one whole run each; return the nodes freed at the last.

    ``order`` is a buffer for the order of the jobs.
    """
    freed = 0
    for now in range(deadline + 1):
        by_descending_loss(losses, order)
        freed = choose_greedily(nodes, losses, app, system, need, now, skip, order, choices)
    return freed


class Columns(NamedTuple):
    """A question as columns of whole numbers, and K."""

    nodes: Ints
    losses: Ints
    app: Ints
    system: Ints
    need: int

    @classmethod
    def of(cls, question: Question) -> Columns:
        """Return the columns of a question."""
        return cls(
            np.array([job.nodes for job in question.jobs], dtype=np.int64),
            _column(whole_losses(question)),
            _column([_steps(question, job.ta_min) for job in question.jobs]),
            _column([_steps(question, job.ts_min) for job in question.jobs]),
            max(0, question.need),
        )

    def buffer(self) -> Ints:
        """Return a buffer for one number a job."""
        return np.zeros(len(self.nodes), dtype=np.int64)


def greedy(question: Question, step: int, *, skip: bool = False) -> dict[int, EvictionChoice] | None:
    """Return the choices by place of the job for a deadline in steps; None where K nodes are not freed.

    Parameters
    ----------
    question, step
        What is asked, and for which deadline.
    skip
        Pass over a job whose checkpoint does not fit, and try the next; else the first one ends it.
    """
    columns = Columns.of(question)
    choices = columns.buffer()
    freed = run(
        choose_greedily,
        len(choices) <= _SMALL_JOBS,
        *columns,
        step,
        int(skip),
        np.argsort(-columns.losses, kind="stable"),
        choices,
    )
    return chosen(choices) if freed >= columns.need else None


def chosen(choices: Ints) -> dict[int, EvictionChoice]:
    """Return choices in numbers by place."""
    return {place: CHOICES[number] for place, number in enumerate(choices.tolist()) if number != KEEP}


def _steps(question: Question, minutes: float | None) -> int | None:
    """Return a time in steps; one past the last deadline does not fit, which is not as if there were none."""
    steps = question.steps_of(minutes)
    return question.steps + 1 if steps is None and minutes is not None else steps


def _column(values: list[int | None]) -> Ints:
    return np.array([NEVER if value is None else value for value in values], dtype=np.int64)


FAR = 1 << 62
BRANCHES_A_CALL = 20_000_000
PLAIN_BRANCHES = 200_000
_DEPTH, _BEST, _BRANCHES = 0, 1, 2


@kernel
def search(
    nodes: Ints,
    losses: Ints,
    app: Ints,
    system: Ints,
    need: int,
    deadline: int,
    branches: int,
    state: Ints,
    sums: Ints,
    trying: Ints,
    found: Ints,
) -> int:
    """Go on with a search for at most ``branches`` branches; return 1 when it is over.

    Parameters
    ----------
    nodes, losses, app, system, need, deadline
        As in ``choose_greedily``.
    branches
        How many to try at most.
    state
        Depth (-1 at the end), least loss so far, branches tried in all.
    sums
        Nodes, time and loss down to each depth, shape (jobs + 1, 3).
    trying
        What is tried for the job of each depth; one more than the last choice when a depth is left.
    found
        The best choices so far.
    """
    depth, best, tried, jobs = state[0], state[1], 0, len(nodes)
    while depth >= 0 and tried < branches:
        tried += 1
        freed, spent, loss = sums[depth, 0], sums[depth, 1], sums[depth, 2]
        if trying[depth] == KEEP and (loss >= best or freed >= need or depth == jobs):
            if loss < best and freed >= need:
                best = loss
                for place in range(jobs):
                    found[place] = trying[place] - 1 if place < depth else KEEP
            depth -= 1
            continue
        kind = trying[depth]
        if kind > BY_SYSTEM:
            depth -= 1
            continue
        trying[depth] = kind + 1
        more = 0
        if kind == KILLED:
            if losses[depth] == NEVER:
                continue
            loss += losses[depth]
        elif kind != KEEP:
            more = app[depth] if kind == BY_APP else system[depth]
            if more == NEVER or spent + more > deadline:
                continue
        if kind != KEEP:
            freed += nodes[depth]
        depth += 1
        sums[depth, 0], sums[depth, 1], sums[depth, 2] = freed, spent + more, loss
        trying[depth] = KEEP
    state[0], state[1] = depth, best
    state[2] += tried
    return 1 if depth < 0 else 0


class Search:
    """A search for one deadline in steps, which can be left and gone on with."""

    def __init__(self, columns: Columns, step: int) -> None:
        count = len(columns.nodes)
        self._columns = columns
        self._step = step
        self._state = np.array([0, FAR, 0], dtype=np.int64)
        self._sums = np.zeros((count + 1, 3), dtype=np.int64)
        self._trying = np.zeros(count + 1, dtype=np.int64)
        self._found = columns.buffer()

    @property
    def branches(self) -> int:
        """Branches tried so far."""
        return int(self._state[_BRANCHES])

    def arguments(self, branches: int) -> tuple[object, ...]:
        """Return what ``search`` is called with to try so many branches more."""
        state = (self._state, self._sums, self._trying, self._found)
        return (*self._columns, self._step, branches, *state)

    def go_on(self, branches: int, *, is_small: bool = False) -> bool:
        """Try so many branches more; return whether the search is over."""
        return bool(run(search, is_small, *self.arguments(branches)))

    def result(self) -> dict[int, EvictionChoice] | None:
        """Return the best choices by place of the job; None if nothing frees enough nodes."""
        return None if self._state[_BEST] == FAR else chosen(self._found)


def backtracking(
    question: Question, step: int, limit_s: float, clock: Callable[[], float] = time.monotonic
) -> dict[int, EvictionChoice] | None:
    """Return the choices by place of the job for a deadline in steps; None where K nodes can't be freed.

    Raises
    ------
    UsageError
        It is not over within ``limit_s`` seconds.
    """
    began = clock()
    one = Search(Columns.of(question), step)
    over = one.go_on(min(PLAIN_BRANCHES, BRANCHES_A_CALL), is_small=True)
    while not over:
        if clock() - began > limit_s:
            raise UsageError(
                f"backtracking is not over after {limit_s:g} s and {one.branches:,} branches, for "
                f"{counted(len(question.jobs), 'job')}: take --solver optimal, or more with --limit"
            )
        over = one.go_on(BRANCHES_A_CALL)
    return one.result()
