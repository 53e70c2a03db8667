"""The answers for the running jobs of a cluster, some of which share nodes.

A node is free when all jobs on it are gone, so jobs that share nodes are taken together: an item's options
are the choices for all of them. Up to ``MOST_TOGETHER`` jobs every combination is looked at. A larger heap of
jobs is cleared node by node, by kills, each time the node that adds least loss: its options are feasible, and
a better one may exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import product

from foundation.errors import UsageError
from foundation.units import counted, verb
from simulator.eviction.eviction_problem import EvictionAnswer, EvictionChoice, Question, whole_losses
from simulator.eviction.programme_items import Chosen, Item, ItemOption, job_item
from simulator.eviction.programme_table import MOST_OPTIONS
from simulator.eviction.running_jobs import EvictionWorld
from simulator.eviction.solvers import EvictionSolver, solve

MOST_TOGETHER = 5
_EVERY: tuple[EvictionChoice | None, ...] = (*EvictionChoice, None)


@dataclass(frozen=True, slots=True)
class LiveAnswers:
    """What was asked of a world, the answer for every deadline, and what one should know of them."""

    question: Question
    answers: Sequence[EvictionAnswer]
    notes: Sequence[str]


def answer_world(
    world: EvictionWorld,
    need: int,
    deadline_min: float,
    step_min: float = 1.0,
    solver: EvictionSolver = EvictionSolver.OPTIMAL,
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
            f"{counted(need, 'node')} cannot be freed: the {counted(len(world.jobs), 'job')} that can be "
            f"evicted {verb(len(world.jobs), 'holds', 'hold')} {most}; besides, {world.idle} are idle already"
        )
    jobs = [running.job for running in world.jobs]
    question = Question(jobs=jobs, need=need, deadline_min=deadline_min, step_min=step_min)
    groups = group_items(question, world)
    if groups.shared and solver is not EvictionSolver.OPTIMAL:
        raise UsageError(
            f"{counted(groups.shared, 'job')} {verb(groups.shared, 'shares', 'share')} nodes; --solver "
            f"{solver} takes jobs one by one"
        )
    notes = []
    if groups.shared:
        notes.append(
            f"{counted(groups.shared, 'job')} {verb(groups.shared, 'shares', 'share')} nodes; a node is free "
            "when the last of its jobs is gone."
        )
    if not groups.is_exact:
        notes.append(
            f"More than {MOST_TOGETHER} jobs are connected by nodes that they share: these are killed node "
            "by node, which may not be the least loss."
        )
    items = groups.items if solver is EvictionSolver.OPTIMAL else None
    place = {job.name: number for number, job in enumerate(jobs)}
    answers = [
        replace(answer, nodes=len(world.freed(frozenset(place[name] for name in answer.choices))))
        if answer.possible
        else answer
        for answer in solve(question, solver, items=items)
    ]
    return LiveAnswers(question, answers, notes)


@dataclass(frozen=True, slots=True)
class Groups:
    """The items of a world, and whether each has all options that could be best."""

    items: tuple[Item, ...]
    shared: int
    is_exact: bool


def group_items(question: Question, world: EvictionWorld) -> Groups:
    """Return one item for each set of jobs that nodes connect; the jobs of ``question`` are the world's."""
    losses = whole_losses(question)
    items: list[Item] = []
    shared, exact = 0, True
    for members, held in _connected(world):
        if len(members) == 1:
            (place,) = members
            items.append(job_item(question, place, losses[place]))
            continue
        shared += len(members)
        if len(members) <= MOST_TOGETHER:
            options = _every_option(question, members, held, losses)
        else:
            options, exact = _node_by_node(members, held, losses), False
        items.append(_few(options))
    return Groups(tuple(items), shared, exact)


Held = Mapping[str, frozenset[int]]
"""For each node, the places of the jobs on it."""


def _connected(world: EvictionWorld) -> Iterator[tuple[Sequence[int], Held]]:
    """Yield the jobs in sets that share no node, by their first job, and the nodes of each."""
    parent = list(range(len(world.jobs)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for holders in world.holders.values():
        first, *others = sorted(holders)
        for other in others:
            low, high = sorted((root(first), root(other)))
            parent[high] = low
    members: dict[int, list[int]] = {}
    held: dict[int, dict[str, frozenset[int]]] = {}
    for place in range(len(world.jobs)):
        members.setdefault(root(place), []).append(place)
    for node, on in world.holders.items():
        held.setdefault(root(min(on)), {})[node] = on
    for first, places in members.items():
        yield places, held[first]


def _every_option(
    question: Question,
    members: Sequence[int],
    held: Held,
    losses: Sequence[int | None],
) -> list[ItemOption]:
    """Return for every number of nodes and steps the option of least loss, then fewest jobs."""
    best: dict[tuple[int, int], ItemOption] = {}
    jobs = [question.jobs[place] for place in members]
    times = [{choice: question.steps_of(job.minutes(choice)) for choice in EvictionChoice} for job in jobs]
    for taken in product(_EVERY, repeat=len(members)):
        chosen: Chosen = tuple(
            (place, choice) for place, choice in zip(members, taken, strict=True) if choice is not None
        )
        spent = [times[at][choice] for at, choice in enumerate(taken) if choice is not None]
        if not chosen or None in spent:
            continue
        gone = frozenset(place for place, _ in chosen)
        nodes = sum(on <= gone for on in held.values())
        loss = sum(losses[place] or 0 for place, choice in chosen if choice is EvictionChoice.KILL)
        option = ItemOption(nodes, sum(step or 0 for step in spent), loss, chosen)
        known = best.get((nodes, option.steps))
        if nodes and option.steps <= question.steps and (known is None or _price(option) < _price(known)):
            best[nodes, option.steps] = option
    return [option for option in best.values() if not _is_beaten(option, best.values())]


def _is_beaten(option: ItemOption, others: Iterable[ItemOption]) -> bool:
    return any(
        other.nodes >= option.nodes and other.steps <= option.steps and other.loss < option.loss
        for other in others
    )


def _price(option: ItemOption) -> tuple[int, int]:
    return option.loss, len(option.chosen)


def _node_by_node(members: Sequence[int], held: Held, losses: Sequence[int | None]) -> list[ItemOption]:
    """Return an option for each number of nodes, the next one always that which adds least loss."""
    left = {node: set(on) for node, on in held.items() if all(losses[place] is not None for place in on)}
    nodes_of: dict[int, list[str]] = {place: [] for place in members}
    for node, on in left.items():
        for place in on:
            nodes_of[place].append(node)
    price = {node: sum(losses[place] or 0 for place in on) for node, on in left.items()}
    heap = [(cost, len(left[node]), node) for node, cost in price.items()]
    heapify(heap)
    gone: set[int] = set()
    freed = 0
    options = []
    while heap:
        cost, count, node = heappop(heap)
        # Of a node that was put in again for less, what stood there before is out of date.
        if not left[node] or (cost, count) != (price[node], len(left[node])):
            continue
        for place in sorted(left[node]):
            gone.add(place)
            for other in nodes_of[place]:
                left[other].discard(place)
                price[other] -= losses[place] or 0
                freed += not left[other]
                heappush(heap, (price[other], len(left[other]), other))
        chosen: Chosen = tuple((place, EvictionChoice.KILL) for place in members if place in gone)
        options.append(ItemOption(freed, 0, sum(losses[place] or 0 for place in gone), chosen))
    return options


def _few(options: Sequence[ItemOption]) -> Item:
    """Return the options in the order of the table, thinned out where it cannot take so many."""
    ordered = sorted(options, key=lambda one: (one.nodes, one.loss, one.steps, len(one.chosen), one.chosen))
    if len(ordered) <= MOST_OPTIONS:
        return ordered
    last = len(ordered) - 1
    return [ordered[round(number * last / (MOST_OPTIONS - 1))] for number in range(MOST_OPTIONS)]
