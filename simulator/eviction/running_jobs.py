"""Running jobs of a live Slurm as a question: who can be evicted, what that frees, and what it loses.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from foundation.slurm import JobSnapshot, Partition, SlurmJob, SlurmJobState, SlurmNode
from foundation.units import counted
from simulator.eviction.eviction_problem import MOST_MINUTES, EvictableJob

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
