"""What the scheduler knows: all gangs, and the nodes that have an agent.

Gangs have slots and nodes; snapshots change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangd.core.cores import ConflictGraph, CoreSet
from gangd.core.gang import Gang, NodePresence, Remembered
from gangd.core.scheduler_events import (
    JobView,
)
from gangd.core.slice_scheduler import SliceScheduler
from gangd.core.slice_timing import TunedTurn
from gangd.core.states import AGENT_TABLE, AgentInput, AgentState, transition
from gangd.core.wall_clock_limits import WallClockLimits


@dataclass(frozen=True, slots=True)
class Change:
    """A node's agent began or ceased to count; ``first`` if it never did before."""

    joined: bool
    first: bool


class Agents:
    """State of the agent of each node, by node number.

    Parameters
    ----------
    planned_ns
        Until when the agents of a former controller go by its plan.
    """

    def __init__(self, planned_ns: int = 0) -> None:
        self._planned_ns = planned_ns
        self._states: list[AgentState] = []
        self._heard_ns: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._joined: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._reported: list[int] = []
        self._unattended_ns: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def grow(self, nodes: int) -> None:
        """Grow to ``nodes`` nodes."""
        missing = nodes - len(self._states)
        if missing > 0:
            self._states.extend([AgentState.UNKNOWN] * missing)
            self._reported.extend([-1] * missing)
            planned = np.full(missing, self._planned_ns, dtype=np.int64)
            self._heard_ns = np.concatenate((self._heard_ns, planned))
            self._unattended_ns = np.concatenate((self._unattended_ns, np.zeros(missing, dtype=np.int64)))
            self._joined = np.concatenate((self._joined, np.zeros(missing, dtype=np.bool_)))

    def state(self, node: int) -> AgentState:
        """Return the state of the agent of a node."""
        return self._states[node] if node < len(self._states) else AgentState.UNKNOWN

    def joined(self, node: int) -> bool:
        """Whether the agent of a node counts."""
        return self.state(node) is AgentState.JOINED

    def fresh(self, node: int, number: int) -> bool:
        """Whether slice ``number`` of a node was not reported before; it is now."""
        if number <= self._reported[node]:
            return False
        self._reported[node] = number
        return True

    def missing(self) -> list[int]:
        """List the nodes whose agent does not count."""
        return [int(node) for node in np.flatnonzero(~self._joined)]

    def unattended_since(self, node: int, now_ns: int) -> int:
        """Return since when no agent is known to have acted on a node; the next call counts from now on."""
        since_ns = int(self._heard_ns[node])
        self._heard_ns[node] = max(since_ns, now_ns)
        self._unattended_ns[node] += max(0, now_ns - since_ns)
        return since_ns

    def unattended_ns(self, node: int) -> int:
        """Return for how long in all no agent has acted on a node, as far as that was asked for."""
        return int(self._unattended_ns[node]) if node < len(self._unattended_ns) else 0

    def happen(self, node: int, happened: AgentInput, now_ns: int, name: str) -> Change | None:
        """Apply an input; returns what changed."""
        before = self._states[node]
        after = transition(AGENT_TABLE, before, happened, f"agent of {name}")
        self._states[node] = after
        joined = after is AgentState.JOINED
        self._joined[node] = joined
        if joined:
            self._heard_ns[node] = now_ns
        if (before is AgentState.JOINED) == joined:
            return None
        return Change(joined, before is AgentState.UNKNOWN)

    def reports(self, node: int, now_ns: int) -> bool:
        """Note a report of an agent that counts already, as nearly all do; False if it did not."""
        if not self._joined[node]:
            return False
        self._heard_ns[node] = now_ns
        return True

    def silent(self, now_ns: int, lease_ns: int) -> list[int]:
        """List the joined nodes that were not heard of for a lease."""
        late = self._joined & (self._heard_ns + lease_ns <= now_ns)
        return [int(node) for node in np.flatnonzero(late)]


@dataclass(frozen=True, slots=True)
class Update:
    """Gangs that are gone, that are new, and that a snapshot may have changed (the new ones among them)."""

    gone: list[Gang]
    new: list[Gang]
    changed: list[Gang]


class GangRegistry:
    """The gangs and their places.

    Attributes
    ----------
    gangs
        By id.
    by_slot
        By slot; a gang that is gone stays until its slot is given to another.
    """

    def __init__(
        self, graph: ConflictGraph, rotation: SliceScheduler, limits: WallClockLimits, agents: Agents
    ) -> None:
        self.gangs: dict[int, Gang] = {}
        self.by_slot: list[Gang] = []
        self._graph = graph
        self._rotation = rotation
        self._limits = limits
        self._agents = agents
        self._memory: dict[int, Remembered] = {}
        self._views: dict[int, JobView] = {}
        self._free: list[int] = []
        self._leaving: list[int] = []
        self._on_node: dict[int, set[int]] = {}
        self._left: dict[int, frozenset[int]] = {}

    def remember(self, memory: Iterable[Remembered]) -> None:
        """Take in what an earlier controller knew; it counts for gangs that run still when they are seen."""
        self._memory = {one.gang: one for one in memory}

    def _recall(self, gang: Gang) -> None:
        known = self._memory.pop(gang.gang, None)
        if known is None or dict(known.jobs) != {job: view.start_s for job, view in gang.views.items()}:
            return
        gang.demand.recall(known.level, known.history, known.flaps, multi=known.multi)
        gang.launched = known.launched
        self._rotation.recall(gang.slot, known.lead, known.wait)

    def gang_of(self, job: int) -> Gang | None:
        """Return the gang that a job belongs to; None if no snapshot knows the job."""
        view = self._views.get(job)
        return None if view is None else self.gangs.get(view.gang)

    def place(self, job: int, node: int) -> NodePresence:
        """Note what a node has to do with a job."""
        view = self._views.get(job)
        if view is None:
            return NodePresence.UNKNOWN
        if node in view.cores.nodes:
            return NodePresence.HERE
        return NodePresence.LEFT if node in self._left.get(job, ()) else NodePresence.ELSEWHERE

    def is_home(self, jobs: Iterable[int], node: int) -> bool:
        """Whether all of these jobs are on a node."""
        for job in jobs:
            view = self._views.get(job)
            if view is None or node not in view.cores.nodes:
                return False
        return True

    def on_node(self, node: int) -> list[Gang]:
        """List the gangs on a node, by id."""
        return [self.gangs[number] for number in sorted(self._on_node.get(node, ()))]

    def neighbours(self, gang: Gang) -> list[Gang]:
        """List the gangs that share a core with ``gang``."""
        return [self.by_slot[slot] for slot in self._graph.neighbours[gang.slot]]

    def shares(self, gang: Gang) -> bool:
        """Whether another gang sits on one of its cores."""
        return bool(self._graph.neighbours[gang.slot])

    def sharing(self) -> list[Gang]:
        """List the gangs that share a core with another one."""
        neighbours = self._graph.neighbours
        return [gang for gang in self.gangs.values() if neighbours[gang.slot]]

    @property
    def job_count(self) -> int:
        """How many jobs there are."""
        return len(self._views)

    def release_slots(self) -> None:
        """Let the slots of gone gangs be used again: no group has them any more."""
        self._free += self._leaving
        self._leaving.clear()

    def update(self, jobs: tuple[JobView, ...], now_ns: int, total_cores: int) -> Update:
        """Take in what Slurm says of all jobs."""
        return self._update(self._touched(jobs), now_ns, total_cores)

    def change(self, jobs: Iterable[JobView], gone: Iterable[int], now_ns: int, total_cores: int) -> Update:
        """Take in jobs that are new or other, and those that are gone; all others are as they were."""
        return self._update(self._changed(jobs, gone), now_ns, total_cores)

    def _update(self, members: Mapping[int, dict[int, JobView]], now_ns: int, total_cores: int) -> Update:
        gone: list[Gang] = []
        new: list[Gang] = []
        changed: dict[int, Gang] = {}
        changes: dict[int, CoreSet | None] = {}
        for number, views in members.items():
            gang = self.gangs.get(number)
            if gang is not None and (not views or _restarted(gang, views)):
                changes[gang.slot] = None
                self._remove(gang)
                gone.append(gang)
                gang = None
            if not views:
                continue
            if gang is None:
                gang = self._create(number, views, now_ns)
                changes[gang.slot] = gang.cores
                new.append(gang)
            elif self._redescribe(gang, views):
                changes[gang.slot] = gang.cores
            for view in views.values():
                self._limits.see(view)
            changed[number] = gang
        if changes:
            dirty = self._graph.update(changes, total_cores)
            self._rotation.touch(dirty)
            for slot in sorted(dirty):
                gang = self.by_slot[slot]
                if self.gangs.get(gang.gang) is gang:
                    changed[gang.gang] = gang
        return Update(gone, new, list(changed.values()))

    def _touched(self, jobs: tuple[JobView, ...]) -> dict[int, dict[int, JobView]]:
        """Jobs, by gang, of all gangs in which anything changed."""
        views: dict[int, JobView] = {}
        known = self._views
        touched: dict[int, dict[int, JobView]] = {}
        for view in jobs:
            views[view.job] = view
            old = known.get(view.job)
            if old is not view and old != view:
                touched[view.gang] = {}
                if old is not None:
                    touched[old.gang] = {}
                    self._moved(old, view)
        for job in sorted(known.keys() - views.keys()):
            touched[known[job].gang] = {}
            self._limits.forget(job)
            self._left.pop(job, None)
        if touched:
            for job, view in views.items():
                if view.gang in touched:
                    touched[view.gang][job] = view
        self._views = views
        return touched

    def _changed(self, jobs: Iterable[JobView], gone: Iterable[int]) -> dict[int, dict[int, JobView]]:
        """Jobs, by gang, of all gangs in which anything changed, by what changed alone."""
        touched: dict[int, dict[int, JobView]] = {}

        def members(number: int) -> dict[int, JobView]:
            if number not in touched:
                gang = self.gangs.get(number)
                touched[number] = {} if gang is None else dict(gang.views)
            return touched[number]

        for job in sorted(set(gone)):
            old = self._views.pop(job, None)
            if old is not None:
                members(old.gang).pop(job, None)
                self._limits.forget(job)
                self._left.pop(job, None)
        for view in jobs:
            old = self._views.get(view.job)
            self._views[view.job] = view
            if old == view:
                continue
            if old is not None:
                if old.gang != view.gang:
                    members(old.gang).pop(view.job, None)
                self._moved(old, view)
            members(view.gang)[view.job] = view
        return touched

    def _moved(self, old: JobView, new: JobView) -> None:
        """Note the nodes that a job has left: an agent may still speak of it there."""
        if old.cores.nodes != new.cores.nodes:
            gone = self._left.get(new.job, frozenset()).union(old.cores.nodes)
            self._left[new.job] = gone.difference(new.cores.nodes)

    def _create(self, number: int, views: dict[int, JobView], now_ns: int) -> Gang:
        slot = self._free.pop() if self._free else len(self.by_slot)
        gang = Gang(number, slot, views, now_ns)
        if slot == len(self.by_slot):
            self.by_slot.append(gang)
        else:
            self.by_slot[slot] = gang
        self.gangs[number] = gang
        self._rotation.enter(slot, number, gang.weight, gang.quantum_ns, takes_turns=gang.needs_turns)
        self._recall(gang)
        self._inhabit(gang)
        return gang

    def retune(self, tuned: Mapping[int, TunedTurn]) -> None:
        """Let each gang have what was measured to be right for it, and others what their jobs say."""
        for gang in self.gangs.values():
            if gang.tuned != tuned.get(gang.gang):
                gang.tuned = tuned.get(gang.gang)
                self._redescribe(gang, gang.views)

    def defer(self, gang: Gang, *, on: bool) -> None:
        """Suspend a gang for want of memory, or no more."""
        gang.deferred = on
        self._redescribe(gang, gang.views)
        self._rotation.move(gang.slot)

    def _redescribe(self, gang: Gang, views: dict[int, JobView]) -> bool:
        """Take in changed views; True if the cores changed."""
        cores, member = gang.cores, gang.member
        before = (gang.weight, gang.quantum_ns, gang.needs_turns)
        self._desert(gang)
        gang.describe(views)
        self._inhabit(gang)
        if (gang.weight, gang.quantum_ns, gang.needs_turns) != before:
            self._rotation.reweigh(gang.slot, gang.weight, gang.quantum_ns, takes_turns=gang.needs_turns)
        if gang.member is not member:
            gang.ended.clear()
            self._rotation.move(gang.slot)
        return gang.cores != cores

    def _remove(self, gang: Gang) -> None:
        self._desert(gang)
        del self.gangs[gang.gang]
        self._leaving.append(gang.slot)

    def _inhabit(self, gang: Gang) -> None:
        gang.missing = 0
        for node in gang.cores.nodes:
            here = self._on_node.get(node)
            if here is None:
                here = self._on_node[node] = set()
            here.add(gang.gang)
            gang.missing += not self._agents.joined(node)

    def _desert(self, gang: Gang) -> None:
        for node in gang.cores.nodes:
            self._on_node[node].discard(gang.gang)


def _restarted(gang: Gang, views: Mapping[int, JobView]) -> bool:
    """Whether a job of the gang runs anew (a requeue): nothing that was known of it holds."""
    return any(job in gang.views and gang.views[job].start_s != view.start_s for job, view in views.items())
