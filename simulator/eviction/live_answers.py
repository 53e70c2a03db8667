"""The answers for the running jobs of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foundation.errors import UsageError
from simulator.eviction.eviction_problem import Answer, Question
from simulator.eviction.node_groups import MOST_TOGETHER, group_items
from simulator.eviction.running_jobs import World
from simulator.eviction.solvers import Solver, solve


@dataclass(frozen=True, slots=True)
class LiveAnswers:
    """What was asked of a world, the answer for every deadline, and what one should know of them."""

    question: Question
    answers: Sequence[Answer]
    notes: Sequence[str]


def answer_world(
    world: World, need: int, deadline_min: float, step_min: float = 1.0, solver: Solver = Solver.OPTIMAL
) -> LiveAnswers:
    """Return what to evict so that ``need`` more nodes are free.

    Raises
    ------
    UsageError
        More nodes are wanted than eviction can free, the times make no sense, or a baseline is asked for
        where jobs share nodes.
    """
    most = len(world.holders)
    if need > most:
        raise UsageError(
            f"{need} nodes cannot be freed: the {len(world.jobs)} jobs that can be evicted hold {most}, and "
            f"{world.idle} more are idle"
        )
    jobs = [running.job for running in world.jobs]
    question = Question(jobs=jobs, need=need, deadline_min=deadline_min, step_min=step_min)
    groups = group_items(question, world)
    if groups.shared and solver is not Solver.OPTIMAL:
        raise UsageError(f"{groups.shared} jobs share nodes; --solver {solver} takes jobs one by one")
    notes = []
    if groups.shared:
        notes.append(f"{groups.shared} jobs share nodes; a node is free when the last of its jobs is gone.")
    if not groups.is_exact:
        notes.append(
            f"More than {MOST_TOGETHER} jobs are connected by nodes that they share: these are killed node "
            "by node, which may not be the least loss."
        )
    items = groups.items if solver is Solver.OPTIMAL else None
    place = {job.name: number for number, job in enumerate(jobs)}
    answers = [
        replace(answer, nodes=len(world.freed(frozenset(place[name] for name in answer.choices))))
        if answer.possible
        else answer
        for answer in solve(question, solver, items=items)
    ]
    return LiveAnswers(question, answers, notes)
