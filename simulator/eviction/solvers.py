"""One call for all solvers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np

from simulator.eviction.baselines import backtracking, greedy
from simulator.eviction.eviction_problem import (
    EvictableJob,
    EvictionAnswer,
    EvictionChoice,
    Question,
    answer_of,
)
from simulator.eviction.programme_table import Item, ProgrammeTable, job_items

LIMIT_S = 60.0


class EvictionSolver(StrEnum):
    """How a question is answered."""

    OPTIMAL = "optimal"
    GREEDY = "greedy"
    BACKTRACKING = "backtracking"


def solve(
    question: Question,
    solver: EvictionSolver = EvictionSolver.OPTIMAL,
    *,
    every_deadline: bool = True,
    skip: bool = False,
    limit_s: float = LIMIT_S,
    overlap: bool = False,
    items: Sequence[Item] | None = None,
) -> list[EvictionAnswer]:
    """Return the answer for every deadline from zero on, or for the last one alone.

    Parameters
    ----------
    question
        What is asked.
    solver
        The dynamic programme, or one of the baselines.
    every_deadline
        Whether to answer every deadline.
    skip
        Greedy passes over a job whose checkpoint does not fit, and tries the next.
    limit_s
        How long backtracking may take for one deadline.
    overlap
        The optimum over sets whose checkpoints are written in time if waits pass side by side, and writes
        that leave bandwidth to others (``overlapped_min``); times are not rounded.
    items
        For the dynamic programme: what it chooses from, where jobs cannot be taken one by one.

    Raises
    ------
    UsageError
        The table would be too large, or backtracking takes too long.
    """
    steps = range(question.steps + 1) if every_deadline else range(question.steps, question.steps + 1)
    if overlap and solver is EvictionSolver.OPTIMAL:
        return [answer_of(question, step, _overlapping(question, step)) for step in steps]
    if solver is EvictionSolver.OPTIMAL:
        found = ProgrammeTable(question, job_items(question) if items is None else items).by_deadline()
        return [answer_of(question, step, found[step]) for step in steps]
    if solver is EvictionSolver.GREEDY:
        return [answer_of(question, step, greedy(question, step, skip=skip)) for step in steps]
    return [answer_of(question, step, backtracking(question, step, limit_s)) for step in steps]


def cheapest(
    jobs: Sequence[EvictableJob], need: int, deadline_min: float = 0.0, step_min: float = 1.0
) -> EvictionAnswer:
    """Return what to evict so that ``need`` nodes are free by one deadline, at the least loss.

    This is the call for a scheduler that preempts: ``loss`` is any cost of preempting a job that adds up, and
    without checkpoint times a job can only be killed.

    Raises
    ------
    UsageError
        K is more than all nodes of the jobs, or the deadline is no multiple of the granularity.
    """
    question = Question(jobs=jobs, need=need, deadline_min=deadline_min, step_min=step_min)
    return solve(question, every_deadline=False)[0]


_CHOICES = tuple(EvictionChoice)


@contextlib.contextmanager
def _silent_library() -> Iterator[None]:
    """Keep what a library in C prints out of this process's output: HiGHS has a line of debugging left."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
        ctypes.CDLL(None).fflush(None)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _overlapping(question: Question, step: int) -> dict[int, EvictionChoice] | None:
    """Return the choices of least loss whose waits pass side by side, as an integer programme.

    Writes are in time if at the end of each wait what is still to be written fits the rest of the deadline
    (``overlapped_min``).
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # heavy, and for this alone

    jobs, deadline_min = question.jobs, question.minutes_of(step)
    count = len(jobs)
    nodes = np.repeat([job.nodes for job in jobs], len(_CHOICES)).astype(float)
    share = np.repeat([job.share for job in jobs], len(_CHOICES))
    loss, length, wait = (np.zeros(len(nodes)) for _ in range(3))
    most = np.ones(len(nodes))
    for place, job in enumerate(jobs):
        for at, choice in enumerate(_CHOICES, start=place * len(_CHOICES)):
            minutes = job.minutes(choice)
            if minutes is None or minutes > deadline_min:
                most[at] = 0
                continue
            wait[at] = job.wait_min if choice is EvictionChoice.APP else 0.0
            length[at] = minutes - wait[at]
            loss[at] = job.loss or 0.0 if choice is EvictionChoice.KILL else 0.0
    instants = np.unique(np.append(wait, 0.0))[:, np.newaxis]
    later = share * np.maximum(0.0, length - np.maximum(0.0, instants - wait))
    with _silent_library():
        found = milp(
            loss + _RATHER_NONE * max(1.0, loss.max(initial=0.0)),
            integrality=np.ones(len(nodes)),
            bounds=Bounds(0, most),
            constraints=[
                LinearConstraint(np.kron(np.eye(count), np.ones(len(_CHOICES))), ub=1),
                LinearConstraint(nodes, lb=question.need),
                LinearConstraint(later, ub=deadline_min - instants[:, 0]),
            ],
        )
    if found.x is None:
        return None
    return {
        at // len(_CHOICES): _CHOICES[at % len(_CHOICES)] for at in np.flatnonzero(found.x > 0.5).tolist()
    }


_RATHER_NONE = 1e-9
"""Of equal losses the set with fewer jobs."""
