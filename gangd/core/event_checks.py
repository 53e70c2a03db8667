"""Whether an event may be taken in: everything is checked before anything is changed."""

from __future__ import annotations

from math import isfinite
from typing import Protocol

from gangd.core.cores import CoreMap, InvalidEvent
from gangd.core.gang_registry import Agents
from gangd.core.gang_settings import GREATEST_QUANTUM_NS
from gangd.core.scheduler_events import AgentJoined, AgentLost, Event, NodeReport, SlurmChanges, SlurmSnapshot
from gangd.core.slice_timing import QuantumPace, Timebase
from gangd.core.states import AgentState

LEAST_WEIGHT, MOST_WEIGHT = 1 / 1024, 1024.0


class KnownState(Protocol):
    """What of a scheduler's state an event may contradict."""

    closed: bool
    now_ns: int
    cores: CoreMap
    agents: Agents
    time: Timebase
    pace: QuantumPace


def check(event: Event, scheduler: KnownState) -> None:
    """Raise ``InvalidEvent`` if the event contradicts the scheduler's state or itself."""
    if scheduler.closed:
        raise InvalidEvent(f"{type(event).__name__} after Shutdown")
    if event.now_ns < scheduler.now_ns:
        raise InvalidEvent(
            f"{type(event).__name__} at {event.now_ns} ns: the clock went back from {scheduler.now_ns} ns"
        )
    match event:
        case SlurmSnapshot() | SlurmChanges():
            _check_snapshot(event, len(scheduler.cores))
        case AgentJoined() | AgentLost():
            scheduler.cores.number(event.node)
            if isinstance(event, AgentLost) and _state(scheduler, event.node) is AgentState.UNKNOWN:
                raise InvalidEvent(f"the agent of {event.node} is lost before it said hello")
        case NodeReport():
            scheduler.cores.number(event.node)
            if _state(scheduler, event.node) is AgentState.UNKNOWN:
                raise InvalidEvent(f"the agent of {event.node} reports before it said hello")
            newest = scheduler.time.slice_at(event.now_ns) + scheduler.pace.lookahead
            if any(use.number > newest for use in event.slices):
                raise InvalidEvent(f"{event.node} reports a slice that lies ahead")
        case _:
            pass


def _check_snapshot(snapshot: SlurmSnapshot | SlurmChanges, nodes: int) -> None:
    if snapshot.asked_ns > snapshot.now_ns:
        raise InvalidEvent("a snapshot from the future")
    if not isfinite(snapshot.wall_s):
        raise InvalidEvent(f"wall clock is {snapshot.wall_s}")
    if len({view.job for view in snapshot.jobs}) != len(snapshot.jobs):
        raise InvalidEvent("a job is in the snapshot twice")
    for view in snapshot.jobs:
        if not LEAST_WEIGHT <= view.weight <= MOST_WEIGHT:
            raise InvalidEvent(f"job {view.job} has weight {view.weight}; 1/1024 to 1024 are possible")
        if view.quantum_ns is not None and not 0 <= view.quantum_ns <= GREATEST_QUANTUM_NS:
            raise InvalidEvent(f"job {view.job} has a quantum of {view.quantum_ns} ns; at most 5 s")
        if not view.cores.packed or view.cores.nodes[-1] >= nodes:
            raise InvalidEvent(f"job {view.job} is on a node that is not known")
        if view.end_s is not None and not isfinite(view.end_s):
            raise InvalidEvent(f"job {view.job} ends at {view.end_s}")


def _state(scheduler: KnownState, node: str) -> AgentState:
    return scheduler.agents.state(scheduler.cores.number(node))
