"""Messages of the controller to its nodes: which node gets what, and when.

From the core's decisions to messages: each node gets what concerns it, and only when it changes.

Pure: no socket, no clock. The core speaks of groups of gangs over the whole cluster; a node hears of a
group as a track with only the jobs that it runs itself. Every message of a node counts its epoch.

Who is sent a beat when: of many nodes a part at a time.

Ten thousand beats at once keep a controller from reading for a tenth of a second, and what agents say then, a
probe of its clock most of all, waits for as long. Pure: the caller has the clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from gangd.core.cores import CoreMap
from gangd.core.scheduler_events import Exempt, ExemptKind, HoldMode, Publish, TrackMember, TrackPlan
from gangd.core.slice_timing import Timebase
from gangd.wire.messages import (
    Beat,
    Bounds,
    ControllerIdentity,
    DownMessage,
    JobCores,
    JobHold,
    MemoryTerms,
    PlanChange,
    SlicePlan,
    SliceSets,
    ThawNow,
    Track,
)
from gangd.wire.messages import ExemptJobs as WireExempt

M = TypeVar("M", Beat, PlanChange, SlicePlan, ThawNow)
A_PART, MOST_PARTS = 500, 8
FIRST_ROUNDS, ANNOUNCED_EVERY = 60, 4
"""A controller that has just begun announces itself in each round, later in every few: who obeys another one
says hello as soon as he hears of it, and who hears nothing says hello anyway."""


class BeatRounds:
    """Rounds in which each agent has its turn once.

    Attributes
    ----------
    parts
        Into how many the round is divided that was begun last.
    """

    def __init__(self) -> None:
        self.parts = 1
        self._begun = 0
        self._nodes: list[str] = []
        self._part = 0

    @property
    def announces(self) -> bool:
        """Whether all nodes hear at once of this controller with the next part."""
        is_announced = self._begun < FIRST_ROUNDS or self._begun % ANNOUNCED_EVERY == 0
        return self._part == 0 and is_announced

    def take(self, agents: Iterable[str]) -> list[str]:
        """Return the nodes of the next part; ``agents`` are those there are, and count as a round begins.

        An agent that joins later has had a schedule, which is worth as much as a heartbeat.
        """
        if self._part == 0:
            self._begun += 1
            self._nodes = list(agents)
            self.parts = min(MOST_PARTS, 1 + len(self._nodes) // A_PART)
        nodes = self._nodes[self._part :: self.parts]
        self._part = (self._part + 1) % self.parts
        return nodes


NO_EXEMPTIONS = WireExempt()


@dataclass(slots=True)
class NodePlan:
    """What one node was sent.

    Attributes
    ----------
    epoch
        Of its newest message.
    tracks, cores
        By name: tracks, and how many cores their jobs have here.
    exempt
        Jobs by kind, in the order in which they came, with how many cores they have here.
    outdated
        Whether the exemptions that were sent still list a job that is gone: worth no message of its own,
        but its number may run anew.
    """

    epoch: int = 0
    tracks: dict[int, Track] = field(default_factory=dict)
    cores: dict[int, tuple[JobCores, ...]] = field(default_factory=dict)
    exempt: dict[ExemptKind, dict[int, int]] = field(
        default_factory=lambda: {kind: {} for kind in ExemptKind}
    )
    outdated: bool = False

    def exemptions(self) -> WireExempt:
        """Return the exemptions as they are sent."""
        if not any(self.exempt.values()):
            return NO_EXEMPTIONS
        return WireExempt(
            never_freeze=tuple(self.exempt[ExemptKind.TERMINATING]),
            opt_out=tuple(self.exempt[ExemptKind.FREE]),
            suspended=tuple(self.exempt[ExemptKind.SUSPENDED]),
        )

    def allocated(self, tracks: Iterable[int], *, exempt: bool) -> tuple[JobCores, ...]:
        """Return the cores of the jobs of tracks, and of those that are exempt."""
        named = [each for name in tracks for each in self.cores[name]]
        if exempt:
            named += [JobCores(job, cores) for jobs in self.exempt.values() for job, cores in jobs.items()]
        return tuple(named)


@dataclass(slots=True)
class _Change:
    tracks: dict[int, Track] = field(default_factory=dict)
    drop: dict[int, None] = field(default_factory=dict)
    first_slice: int = 0
    exempt: bool = False
    whole: bool = False

    def begin(self, track: Track) -> None:
        self.tracks[track.track] = track
        self.drop.pop(track.track, None)

    def end(self, name: int) -> None:
        self.drop[name] = None
        self.tracks.pop(name, None)


class Fanout:
    """The plans of all nodes, and the messages that bring agents up to date.

    Parameters
    ----------
    controller
        Who speaks.
    cores
        The core's numbers of nodes and cores.
    time
        The core's slices.
    lease_ns
        Lease that every message grants.
    bounds, memory
        How holding is bounded, and what agents do about memory.
    """

    def __init__(
        self,
        controller: ControllerIdentity,
        cores: CoreMap,
        time: Timebase,
        lease_ns: int,
        bounds: Bounds,
        memory: MemoryTerms | UnsetType = UNSET,
    ) -> None:
        self.controller = controller
        self._memory = memory
        self._lease_ns = lease_ns
        self._bounds = bounds
        self.plans: dict[str, NodePlan] = {}
        self._cores = cores
        self._time = time
        self._seq = 0
        self._nodes_of: dict[int, set[str]] = {}
        self._pending: dict[str, _Change] = {}

    def publish(self, command: Publish) -> None:
        """Note the tracks that change."""
        first = command.first_slice
        for name in command.drop:
            for node in self._nodes_of.pop(name, ()):
                self._change(node, first).end(name)
        for plan in command.tracks:
            before = self._nodes_of.get(plan.name, set())
            tracks = _split(plan, self._cores)
            for node in before - tracks.keys():
                self._change(node, first).end(plan.name)
            for node, (track, allocated) in tracks.items():
                self._change(node, first).begin(track)
                self._plan(node).cores[plan.name] = allocated
            self._nodes_of[plan.name] = set(tracks)
        if command.rebase:
            for node in self.plans:
                self._change(node, first).whole = True

    def exempt(self, command: Exempt) -> None:
        """Note an exemption that begins or ends, on all nodes of the gang's jobs."""
        for job, node, cores in _places(command.member, self._cores):
            listed = self._plan(node).exempt[command.kind]
            if command.on:
                listed[job] = cores
            else:
                listed.pop(job, None)
            if command.on or command.kind is not ExemptKind.TERMINATING:
                self._pending.setdefault(node, _Change()).exempt = True
            else:
                self._plan(node).outdated = True

    def set_terms(self, lease_ns: int, bounds: Bounds, memory: MemoryTerms | UnsetType = UNSET) -> None:
        """Grant another lease from the next message on, and tell every node other bounds."""
        self._lease_ns = lease_ns
        if (bounds, memory) != (self._bounds, self._memory):
            self._bounds, self._memory = bounds, memory
            for node in self.plans:
                self.resend(node)

    def resend(self, node: str) -> None:
        """Note that ``node`` needs its whole plan: its agent is new, or missed a message."""
        self._plan(node)
        self._pending.setdefault(node, _Change()).whole = True

    @property
    def is_pending(self) -> bool:
        """Whether something was noted that no message tells yet."""
        return bool(self._pending)

    def messages(self, now_ns: int, horizon: int) -> list[DownMessage]:
        """Messages for all that was noted; slices below ``horizon`` are final now."""
        messages: list[DownMessage] = []
        for node, change in self._pending.items():
            plan = self._plan(node)
            before = plan.epoch
            first = max(change.first_slice, horizon)
            plan.epoch += 1
            for name in change.drop:
                plan.tracks.pop(name, None)
                plan.cores.pop(name, None)
            plan.tracks |= change.tracks
            if change.whole or not before:
                messages.append(self._whole(node, plan, now_ns, first))
            else:
                exempt = change.exempt or plan.outdated
                messages.append(
                    self._message(
                        PlanChange,
                        node,
                        plan.epoch,
                        now_ns,
                        base_epoch=before,
                        first_slice=first,
                        horizon=horizon,
                        tracks=tuple(change.tracks.values()),
                        drop=tuple(change.drop),
                        exempt=plan.exemptions() if exempt else None,
                        cores=plan.allocated(change.tracks, exempt=exempt),
                    )
                )
            plan.outdated = False
        self._pending = {}
        return messages

    def beats(self, nodes: Iterable[str], now_ns: int, horizon: int) -> list[DownMessage]:
        """Messages that renew the lease of ``nodes``; of those that have a plan."""
        messages: list[DownMessage] = []
        for node in nodes:
            plan = self.plans.get(node)
            if plan is not None and plan.epoch:
                messages.append(self._message(Beat, node, plan.epoch, now_ns, horizon=horizon))
        return messages

    def thaw_all(self, now_ns: int, reason: str) -> DownMessage:
        """Message that thaws everything everywhere and voids all plans."""
        return self._message(ThawNow, None, 0, now_ns, jobs=None, reason=reason)

    def announce(self, now_ns: int) -> DownMessage:
        """Message that changes nothing, but tells agents of an earlier controller to say hello."""
        return self._message(ThawNow, None, 0, now_ns, jobs=(), reason="announcement")

    def _whole(self, node: str, plan: NodePlan, now_ns: int, first: int) -> SlicePlan:
        era = self._time.era(first)
        return self._message(
            SlicePlan,
            node,
            plan.epoch,
            now_ns,
            first_slice=first,
            first_start_ns=era.start_ns + (first - era.first_slice) * era.quantum_ns,
            quantum_ns=era.quantum_ns,
            horizon=first,
            bounds=self._bounds,
            tracks=tuple(plan.tracks.values()),
            exempt=plan.exemptions(),
            cores=plan.allocated(plan.tracks, exempt=True),
            memory=self._memory,
        )

    def _message(self, kind: type[M], node: str | None, epoch: int, now_ns: int, **said: Any) -> M:
        """Return the next message: with what each one says, and what it says besides."""
        self._seq += 1
        return kind(
            controller=self.controller,
            node=node,
            epoch=epoch,
            seq=self._seq,
            sent_ns=now_ns,
            lease_ns=self._lease_ns,
            **said,
        )

    def _plan(self, node: str) -> NodePlan:
        plan = self.plans.get(node)
        if plan is None:
            plan = self.plans[node] = NodePlan()
        return plan

    def _change(self, node: str, first: int) -> _Change:
        self._plan(node)
        change = self._pending.setdefault(node, _Change())
        change.first_slice = first
        return change


def _places(member: TrackMember, cores: CoreMap) -> list[tuple[int, str, int]]:
    return [
        (job, cores.name(node), count)
        for job, placed in member.jobs
        for node, count in zip(placed.nodes, cores.counts(placed), strict=True)
    ]


def _split(plan: TrackPlan, cores: CoreMap) -> dict[str, tuple[Track, tuple[JobCores, ...]]]:
    """Tracks of one group by node: there, only the jobs that the node runs, and how many cores they have."""
    jobs: dict[int, list[tuple[int, int]]] = {}
    allocated: dict[int, list[JobCores]] = {}
    for column, member in enumerate(plan.members):
        for job, placed in member.jobs:
            for node, count in zip(placed.nodes, cores.counts(placed), strict=True):
                jobs.setdefault(node, []).append((job, column))
                allocated.setdefault(node, []).append(JobCores(job, count))
    rows = plan.run.tolist()
    yielding = {column for column, member in enumerate(plan.members) if member.hold is HoldMode.YIELD}
    return {
        cores.name(node): (
            Track(
                plan.name,
                plan.first_slice,
                plan.repeat,
                tuple([_sets(row, here) for row in rows]),
                tuple([JobHold(job, "yield") for job, column in here if column in yielding])
                if yielding
                else (),
            ),
            tuple(allocated[node]),
        )
        for node, here in jobs.items()
    }


def _sets(row: list[bool], here: list[tuple[int, int]]) -> SliceSets:
    run = tuple([job for job, column in here if row[column]])
    held = tuple([job for job, column in here if not row[column]])
    return SliceSets(run, held)
