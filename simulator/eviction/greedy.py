"""CoSim's greedy baseline (section IV-C): checkpoint what is dear, then kill what is cheap, for one deadline.

Jobs are taken by descending loss. Each is checkpointed by the faster of its two methods while the summed time
stays within the deadline; the first that does not fit ends this. Then jobs are killed from the other end, of
least loss first. It stops as soon as K nodes are free.
"""

from __future__ import annotations

import numpy as np

from simulator.eviction.eviction_problem import EvictionChoice, Question, whole_losses
from simulator.eviction.solver_kernels import run
from simulator.jit.compilation import kernel
from simulator.jit.field_records import Ints

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


class Columns:
    """A question as columns of whole numbers."""

    def __init__(self, question: Question) -> None:
        jobs = question.jobs
        self.nodes = np.array([job.nodes for job in jobs], dtype=np.int64)
        self.losses = _column(whole_losses(question))
        self.app = _column([_steps(question, job.ta_min) for job in jobs])
        self.system = _column([_steps(question, job.ts_min) for job in jobs])
        self.need = max(0, question.need)

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
    columns = Columns(question)
    choices = columns.buffer()
    freed = run(
        choose_greedily,
        len(choices) <= _SMALL_JOBS,
        columns.nodes,
        columns.losses,
        columns.app,
        columns.system,
        columns.need,
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
