"""What the dynamic programme chooses from: items, of each of which at most one option is taken.

A job is an item with an option for each of kill, application and system checkpoint. Jobs that share nodes
are one item together (``groups``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.eviction.eviction_problem import EvictionChoice, Question, whole_losses

Chosen = tuple[tuple[int, EvictionChoice], ...]
"""Places of jobs among those of the question, and what becomes of them."""


@dataclass(frozen=True, slots=True)
class ItemOption:
    """One way to take an item: nodes freed, steps of checkpoints, whole parts of loss, and the choices."""

    nodes: int
    steps: int
    loss: int
    chosen: Chosen


Item = Sequence[ItemOption]
"""Options in order of preference where they cost the same."""


def job_items(question: Question) -> list[Item]:
    """Return one item a job: kill before application before system checkpoint (Algorithm 1)."""
    losses = whole_losses(question)
    return [job_item(question, place, losses[place]) for place in range(len(question.jobs))]


def job_item(question: Question, place: int, loss: int | None) -> Item:
    """Return the item of the job at a place; its loss is in whole parts, None if it may not be killed."""
    job = question.jobs[place]
    found = []
    for choice in EvictionChoice:
        steps = question.steps_of(job.minutes(choice))
        if steps is not None:
            costs = (loss or 0) if choice is EvictionChoice.KILL else 0
            found.append(ItemOption(job.nodes, steps, costs, ((place, choice),)))
    return found
