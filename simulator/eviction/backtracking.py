"""CoSim's exhaustive baseline (section IV-C): every choice for every job, pruned by loss; one run a deadline.

A branch is given up when its loss reaches the best so far, so of several best answers the first is found. The
search is depth first and keeps its place in arrays: it is done some hundred thousand branches at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from foundation.errors import UsageError
from foundation.units import counted
from simulator.eviction.eviction_problem import EvictionChoice, Question
from simulator.eviction.greedy import BY_APP, BY_SYSTEM, KEEP, KILLED, NEVER, Columns, chosen
from simulator.eviction.solver_kernels import run
from simulator.jit.compilation import kernel
from simulator.jit.field_records import Ints

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
        As in ``greedy.choose_greedily``.
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
        columns = self._columns
        return (
            columns.nodes,
            columns.losses,
            columns.app,
            columns.system,
            columns.need,
            self._step,
            branches,
            self._state,
            self._sums,
            self._trying,
            self._found,
        )

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
    one = Search(Columns(question), step)
    over = one.go_on(min(PLAIN_BRANCHES, BRANCHES_A_CALL), is_small=True)
    while not over:
        if clock() - began > limit_s:
            raise UsageError(
                f"backtracking is not over after {limit_s:g} s and {one.branches:,} branches, for "
                f"{counted(len(question.jobs), 'job')}: take --solver optimal, or more with --limit"
            )
        over = one.go_on(BRANCHES_A_CALL)
    return one.result()
