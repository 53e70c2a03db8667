"""The running jobs of a cluster as an eviction problem, and answers where some of them share nodes.

Running jobs of a live Slurm as a question: who can be evicted, what that frees, and what it loses.

A node is free when no job is left on it. So a job frees the nodes that it holds alone; jobs that share nodes
free them together (``groups``). A node counts if it takes jobs (it is neither down nor drained), lies in the
partition, and every job on it can be evicted. Jobs that are completing leave by themselves. Slurm may hide
others' jobs (PrivateData), and some cannot be read: a node with more CPUs allocated than the jobs that are
seen there hold does not count, nor is it idle.

The loss of a job is the time since its start, or since its last checkpoint where one is known, times the
share of each node's cores that it holds, in node-hours. A job that is suspended can only be killed. Nothing
that a user writes is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import product

from foundation.errors import UsageError
from foundation.slurm import JobSnapshot, Partition, SlurmJob, SlurmJobState, SlurmNode
from foundation.units import counted, verb
from simulator.eviction.eviction_problem import (
    MOST_MINUTES,
    EvictableJob,
    EvictionAnswer,
    EvictionChoice,
    Question,
    whole_losses,
)
from simulator.eviction.programme_table import MOST_OPTIONS, Chosen, Item, ItemOption, job_item
from simulator.eviction.solvers import EvictionSolver, solve

_S_PER_H, _S_PER_MIN = 3600.0, 60.0
_EVICTABLE = frozenset({SlurmJobState.RUNNING, SlurmJobState.SUSPENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorKnowledge:
    """What an operator knows of a job; None for what he doesn't."""

    loss: float | None = None
    ts_min: float | None = None
    ta_min: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRules:
    """What holds for the jobs of a cluster.

    Parameters
    ----------
    partition
        Where nodes are wanted; None: anywhere.
    keep
        Jobs that are not to be evicted, as Slurm's commands call them.
    known
        By job, what is known of single jobs.
    app_min
        Minutes in which every other job saves itself at a signal; None: none does.
    system_min
        Minutes in which every other job is checkpointed from outside; None: there is no such command.
    every_min
        Every job checkpoints itself after so many minutes, again and again from its start; None: it doesn't.
    """

    partition: str | None = None
    keep: frozenset[str] = frozenset()
    known: Mapping[str, OperatorKnowledge] = field(default_factory=dict)
    app_min: float | None = None
    system_min: float | None = None
    every_min: float | None = None


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A job, or all components of a heterogeneous one, that can be evicted."""

    spec: str
    job_id: int
    user: str
    start_time: int
    job: EvictableJob


@dataclass(frozen=True, slots=True)
class EvictionWorld:
    """The running jobs of a cluster.

    Parameters
    ----------
    jobs
        Those that can be evicted and are on a node that counts, by number.
    holders
        For each node that can become free by eviction, the places of the jobs on it.
    idle
        How many nodes are free already.
    notes
        What one should know of the rest, in sentences.
    """

    jobs: tuple[EvictionCandidate, ...]
    holders: Mapping[str, frozenset[int]]
    idle: int
    notes: tuple[str, ...] = ()

    def freed(self, places: frozenset[int]) -> frozenset[str]:
        """Return the nodes that are free once these jobs are gone."""
        return frozenset(node for node, held in self.holders.items() if held <= places)


def look(
    snapshot: JobSnapshot,
    nodes: Sequence[SlurmNode],
    partitions: Sequence[Partition],
    now_s: float,
    rules: EvictionRules,
) -> EvictionWorld:
    """Return the running jobs of a cluster as they are at ``now_s``, seconds since the epoch."""
    inside = _counted(nodes, partitions, rules.partition)
    counted = inside - _partly_seen(snapshot, nodes)
    by_spec: dict[str, list[SlurmJob]] = {}
    leaving = 0
    for job in snapshot.jobs:
        if job.state is SlurmJobState.COMPLETING:
            leaving += 1
        elif job.state.holds_cores:
            by_spec.setdefault(job.spec, []).append(job)
    on_node: dict[str, set[str]] = {}
    for spec, parts in by_spec.items():
        for part in parts:
            for node in part.nodes:
                on_node.setdefault(node, set()).add(spec)
    staying = {spec for spec, parts in by_spec.items() if not _can_go(spec, parts, rules)}
    free_by_eviction = {
        node: specs for node, specs in on_node.items() if node in counted and not specs & staying
    }
    going = sorted(set().union(*free_by_eviction.values()), key=_by_number)
    place = {spec: number for number, spec in enumerate(going)}
    cores = {node.name: node.cores for node in nodes}
    return EvictionWorld(
        jobs=tuple(_running(spec, by_spec[spec], free_by_eviction, cores, now_s, rules) for spec in going),
        holders={node: frozenset(place[spec] for spec in specs) for node, specs in free_by_eviction.items()},
        idle=sum(node not in on_node for node in counted),
        notes=_notes(snapshot, leaving, rules, by_spec, len(inside - counted)),
    )


def _counted(
    nodes: Sequence[SlurmNode], partitions: Sequence[Partition], wanted: str | None
) -> frozenset[str]:
    inside = {name for part in partitions if wanted in {None, part.name} for name in part.nodes}
    return frozenset(node.name for node in nodes if node.is_up and node.name in inside)


def _partly_seen(snapshot: JobSnapshot, nodes: Sequence[SlurmNode]) -> frozenset[str]:
    """Return the nodes on which more is allocated than the jobs that are seen hold."""
    seen: dict[str, set[int]] = {}
    for job in snapshot.jobs:
        if job.state.holds_cores:
            for held in job.cores:
                seen.setdefault(held.node, set()).update(held.cores)
    return frozenset(
        node.name
        for node in nodes
        if node.cpus_allocated > node.threads_per_core * len(seen.get(node.name, ()))
    )


def _can_go(spec: str, parts: Sequence[SlurmJob], rules: EvictionRules) -> bool:
    return spec not in rules.keep and all(
        part.state in _EVICTABLE and part.start_time is not None and part.cores for part in parts
    )


def _running(
    spec: str,
    parts: Sequence[SlurmJob],
    counted: Mapping[str, object],
    cores: Mapping[str, int],
    now_s: float,
    rules: EvictionRules,
) -> EvictionCandidate:
    start_time = min(part.start_time or 0 for part in parts)
    known = rules.known.get(spec, OperatorKnowledge())
    is_suspended = any(part.state is SlurmJobState.SUSPENDED for part in parts)
    held = sum(len(one.cores) / max(1, cores.get(one.node, 0)) for part in parts for one in part.cores)
    names = {node for part in parts for node in part.nodes if node in counted}
    job = EvictableJob(
        name=spec,
        nodes=len(names),
        loss=held * _unsaved_s(start_time, now_s, rules.every_min) / _S_PER_H
        if known.loss is None
        else known.loss,
        ts_min=None if is_suspended else _first(known.ts_min, rules.system_min),
        ta_min=None if is_suspended else _first(known.ta_min, rules.app_min),
    )
    return EvictionCandidate(spec, parts[0].job_id, parts[0].user, start_time, job)


def _unsaved_s(start_time: int, now_s: float, every_min: float | None) -> float:
    """Return the seconds since a job's start, or since the last of its regular checkpoints."""
    passed_s = max(0.0, now_s - start_time)
    return passed_s if every_min is None else passed_s % (every_min * _S_PER_MIN)


def _first(one: float | None, other: float | None) -> float | None:
    value = other if one is None else one
    return None if value is None else min(value, MOST_MINUTES)


def _by_number(spec: str) -> tuple[int, int]:
    number, _, task = spec.partition("_")
    return int(number), int(task or -1)


def _notes(
    snapshot: JobSnapshot, leaving: int, rules: EvictionRules, by_spec: Mapping[str, object], partly_seen: int
) -> tuple[str, ...]:
    notes = []
    if leaving:
        notes.append(f"Completing, so nodes become free without eviction: {counted(leaving, 'job')}.")
    if snapshot.unreadable:
        notes.append(f"{counted(len(snapshot.unreadable), 'job')} cannot be read.")
    if partly_seen:
        notes.append(f"Not counted, for jobs there cannot be seen or read: {counted(partly_seen, 'node')}.")
    gone = sorted((set(rules.known) | rules.keep) - set(by_spec))
    if gone:
        more = f" and {len(gone) - 5} more" if len(gone) > 5 else ""
        notes.append(f"These named jobs do not run: {', '.join(gone[:5])}{more}.")
    return tuple(notes)


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
    question: Question, members: Sequence[int], held: Held, losses: Sequence[int | None]
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
