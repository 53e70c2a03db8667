"""What the controller shows: to ``osub top``, and to a monitoring system.

What ``osub top`` shows: ``status.json`` in the state folder, written anew once a second.

The structs here are the format; read them with ``read_status``. ``about`` leaves of a status what concerns
one job: the job, who shares cores with it, and its nodes.

What the controller tells a monitoring system, and whether it is well.

The loop tells what it knows once a second (``ControllerReading``); a page is made of that in the server's
thread. Between the two nothing is shared but whole values that never change.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from foundation.errors import ClusterError, InputError
from foundation.units import counted_of
from gangd.controller.alarms import Raised
from gangd.controller.orders import MOST_SHOWN, ActiveOrder, OrdersSurvey
from gangd.controller.state_directory import STATUS_NAME
from gangd.controller.uplink import AgentInfo
from gangd.core.cores import CoreMap
from gangd.core.gang import Gang
from gangd.core.scheduler import GangScheduler
from gangd.core.scheduler_events import HoldMode
from gangd.core.slice_timing import TunedGroup
from gangd.core.states import AgentState, GangState
from gangd.monitor.hand_out import MetricsSource
from gangd.monitor.metrics_requests import Health
from gangd.monitor.metrics_table import DECISION_S, UNKNOWN, Figures, Histogram
from gangd.wire.messages import printable

MOST_GANGS = 2_000
HoldKind = Literal["freeze", "yield"]
Role = Literal["run", "held", "yields", "idle", "free"]


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job that shares cores, or did: its state, how it is held, and what it does in the present slice.

    ``cores`` has the core indices of each of its nodes; ``ordered`` why an operator's order lets it run.
    """

    job: int
    gang: int
    state: str
    demand: str
    hold: str
    role: Role
    weight: float
    cores: dict[str, list[int]]
    ordered: str | None = None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node with an agent, or where one is missed. Skew and freeze are those of its newest slice.

    ``unattended_s`` is for how long in all, since the controller began, no agent acted on it.
    """

    node: str
    agent: str
    freezer: str | None = None
    yields: str | None = None
    skew_us: int | None = None
    freeze_us: int | None = None
    offset_us: float | None = None
    rtt_us: int | None = None
    leaked_us: int = 0
    faults: dict[str, int] = {}
    protocol: int | None = None
    agent_version: str | None = None
    agent_pid: int | None = None
    unattended_s: float = 0.0


class AlarmStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An active alarm, and for how long; what caused it: a job, its user, nodes, where that is known."""

    kind: str
    subject: str
    text: str
    for_s: float
    count: int
    job: int | None = None
    user: str | None = None
    nodes: tuple[str, ...] = ()


class OrderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's order in force.

    ``jobs`` hold cores and are let run by it; ``left`` were there before a drain, and go on taking turns.
    """

    what: str
    target: str
    weight: float | None
    by: str
    for_s: float
    jobs: int = 0
    left: int | None = None


class TunedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group whose slices tune themselves: its gangs, their turns, and why (``slice_timing.TunedGroup``)."""

    gangs: list[int]
    turn_ms: float
    freezes: bool
    cost_ms: float | None
    left_share: float | None


class ControllerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The controller at ``time_ms`` (wall clock).

    ``quantum_ms`` is the length of the present slice, ``asked_quantum_ms`` the one that was asked for,
    ``lookahead`` how many slices are final, ``lost_share`` what switches take of time, None while no job
    takes turns. ``slurm_age_s`` is how old the newest answer of Slurm is, None before the first; ``dropped``
    counts messages that were refused, by kind; ``jobs_left_out`` jobs beyond the limit;
    ``record`` the folder into which slices are written, None where they are not; ``hold`` how jobs are held
    for which nothing else is said; ``orders`` what operators ordered, ``orders_left_out`` how many more;
    ``tuned`` groups whose slices tune themselves, None where slices do not.
    """

    version: int = 1
    time_ms: float
    controller: str
    pid: int
    dry_run: bool
    slice: int
    quantum_ms: float
    asked_quantum_ms: float
    lookahead: int
    lost_share: float | None
    lease_ms: float
    slurm_age_s: float | None
    running_jobs: int
    shared_jobs: int
    tick_us: int
    dropped: dict[str, int]
    alarms: list[AlarmStatus]
    nodes: list[NodeStatus]
    jobs: list[JobStatus]
    jobs_left_out: int = 0
    record: str | None = None
    hold: HoldKind = "freeze"
    orders: list[OrderStatus] = []
    orders_left_out: int = 0
    tuned: list[TunedStatus] | None = None


@dataclass(frozen=True, slots=True)
class Vitals:
    """What the loop knows of itself, for a ``ControllerStatus``."""

    time_ms: float
    controller: str
    dry_run: bool
    slurm_age_s: float | None
    tick_us: int
    dropped: dict[str, int]
    record: str | None = None
    hold: HoldKind = "freeze"
    orders: OrdersSurvey = field(default_factory=OrdersSurvey)


def describe(
    vitals: Vitals,
    scheduler: GangScheduler,
    agents: Mapping[str, AgentInfo],
    alarms: Iterable[Raised],
    now_ns: int,
) -> ControllerStatus:
    """Return the status at ``now_ns``."""
    number = scheduler.time.slice_at(now_ns)
    shared = scheduler.sharing()
    running = scheduler.owners(number)
    cores = scheduler.cores
    return ControllerStatus(
        time_ms=vitals.time_ms,
        controller=vitals.controller,
        pid=os.getpid(),
        dry_run=vitals.dry_run,
        slice=number,
        quantum_ms=scheduler.time.length_ns(number) / 1e6,
        asked_quantum_ms=scheduler.settings.quantum_ns / 1e6,
        lookahead=scheduler.pace.lookahead,
        lost_share=scheduler.pace.lost_share,
        lease_ms=scheduler.settings.lease_ns / 1e6,
        slurm_age_s=vitals.slurm_age_s,
        running_jobs=scheduler.job_count,
        shared_jobs=_count_jobs(shared),
        tick_us=vitals.tick_us,
        dropped=vitals.dropped,
        alarms=[_alarm(alarm, now_ns) for alarm in alarms],
        nodes=[_node(name, scheduler, agents.get(name)) for name in scheduler.cores],
        jobs=[
            job
            for gang in shared[:MOST_GANGS]
            for job in _jobs(gang, cores, gang.gang in running, vitals.orders.free)
        ],
        jobs_left_out=_count_jobs(shared[MOST_GANGS:]),
        record=vitals.record,
        hold=vitals.hold,
        orders=[_order(order, vitals) for order in vitals.orders.orders[:MOST_SHOWN]],
        orders_left_out=max(0, len(vitals.orders.orders) - MOST_SHOWN),
        tuned=[_tuned(one) for one in islice(scheduler.pace.tuner.groups.values(), MOST_SHOWN)]
        if scheduler.settings.tune
        else None,
    )


def read_status(state: Path) -> ControllerStatus:
    """Read the newest status in the state folder of a controller.

    Raises
    ------
    InputError
        There is none, or it is of another version.
    """
    path = state / STATUS_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=ControllerStatus)
    except PermissionError as error:
        raise InputError(f"cannot read {path}: only root and the user of this gangd may") from error
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}; is gangd running with this state folder?"
        ) from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path} is not the status of a gangd of this version: {error}") from error


def _tuned(group: TunedGroup) -> TunedStatus:
    return TunedStatus(
        gangs=list(group.gangs[:MOST_SHOWN]),
        turn_ms=group.turn_ns / 1e6,
        freezes=group.freezes,
        cost_ms=None if group.cost_ns is None else group.cost_ns / 1e6,
        left_share=group.left,
    )


def _order(order: ActiveOrder, vitals: Vitals) -> OrderStatus:
    survey = vitals.orders
    return OrderStatus(
        what=order.what,
        target=str(order.target),
        weight=order.weight,
        by=order.by,
        for_s=vitals.time_ms / 1000 - order.since_s,
        jobs=survey.stopped.get(order.target, 0) if order.weight is None else 0,
        left=survey.left.get(order.target, 0) if order.what == "drain" else None,
    )


def _count_jobs(gangs: Iterable[Gang]) -> int:
    return sum([len(gang.views) for gang in gangs])


def _jobs(gang: Gang, cores: CoreMap, runs: bool, free: Mapping[int, str]) -> list[JobStatus]:
    return [
        JobStatus(
            job=view.job,
            gang=gang.gang,
            state=gang.state.value,
            demand=gang.demand.level.value,
            hold=gang.hold.value,
            role=_role(gang, runs),
            weight=view.weight,
            cores=cores.unpack(view.cores),
            ordered=free.get(view.job),
        )
        for view in gang.views.values()
    ]


def _role(gang: Gang, runs: bool) -> Role:
    if not runs:
        return "yields" if gang.hold is HoldMode.YIELD else "held"
    if gang.state is GangState.IDLE:
        return "idle"
    return "run" if gang.state is GangState.BUSY else "free"


def _node(name: str, scheduler: GangScheduler, info: AgentInfo | None) -> NodeStatus:
    state = scheduler.agent_state(name).value
    unattended_s = scheduler.agents.unattended_ns(scheduler.cores.number(name)) / 1e9
    if info is None:
        return NodeStatus(node=name, agent=state, unattended_s=unattended_s)
    return NodeStatus(
        node=name,
        agent=state,
        freezer=info.hello.freezer,
        yields=info.hello.yields,
        skew_us=info.skew_us,
        freeze_us=info.freeze_us,
        offset_us=info.offset_ns / 1000,
        rtt_us=info.rtt_us,
        leaked_us=info.leaked_us,
        faults=dict(info.faults),
        protocol=info.hello.version,
        agent_version=printable(info.hello.agent_version),
        agent_pid=info.hello.pid,
        unattended_s=unattended_s,
    )


def _alarm(alarm: Raised, now_ns: int) -> AlarmStatus:
    return AlarmStatus(
        kind=alarm.kind,
        subject=alarm.subject,
        text=alarm.text,
        for_s=(now_ns - alarm.since_ns) / 1e9,
        count=alarm.count,
        job=alarm.job,
        user=alarm.user,
        nodes=alarm.nodes,
    )


def about(status: ControllerStatus, job: int | None) -> ControllerStatus:
    """Return what concerns a job; all of it for None.

    Raises
    ------
    ClusterError
        The job shares no cores now, or does not run.
    """
    if job is None:
        return status
    own = next((one for one in status.jobs if one.job == job), None)
    if own is None:
        raise ClusterError(f"job {job} shares no cores now: it runs alone on them, waits, or is over")
    return msgspec.structs.replace(
        status,
        jobs=[one for one in status.jobs if one.gang == own.gang or _meet(one, own)],
        nodes=[node for node in status.nodes if node.node in own.cores],
        jobs_left_out=0,
    )


def _meet(one: JobStatus, other: JobStatus) -> bool:
    return any(set(cores) & set(other.cores.get(node, ())) for node, cores in one.cores.items())


SLURM_PATIENCE_S = 30.0
"""Slurm is well if it has answered within that; it is asked every five seconds at least."""


def census(scheduler: GangScheduler, number: int) -> tuple[Counter[str], Counter[str]]:
    """Count the gangs by state, and the jobs that are held in slice ``number`` by how."""
    running = scheduler.owners(number)
    gangs: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for gang in scheduler.gangs.values():
        gangs[gang.state.value] += 1
        if gang.gang not in running:
            held[gang.hold.value] += len(gang.views)
    return gangs, held


@dataclass(frozen=True, slots=True)
class ControllerReading:
    """What the loop knew at an instant of CLOCK_MONOTONIC."""

    at_ns: int
    status: ControllerStatus
    gangs: Mapping[str, int]
    held: Mapping[str, int]
    faults: Mapping[str, int]
    slurm_failures: int
    ends_moved: int
    ends_refused: int
    connections: int
    record_bytes: int


@dataclass
class ControllerMetrics(MetricsSource[ControllerReading]):
    """The latest reading of the controller.

    Attributes
    ----------
    decisions, decisions_cpu
        How long decisions took, and how much CPU time of the loop's thread; the loop adds.
    beat_ns
        When leases were renewed last; None before the first time.
    """

    decisions: Histogram = field(default_factory=lambda: Histogram(DECISION_S))
    decisions_cpu: Histogram = field(default_factory=lambda: Histogram(DECISION_S))
    beat_ns: int | None = None

    def health(self) -> Health:
        """Look whether leases are renewed, Slurm answers and agents are joined."""
        now_ns, reading = self.clock(), self._reading
        if reading is None:
            return Health(dict.fromkeys(("lease", "slurm", "agents"), (False, "not known yet")))
        silent_s = (now_ns - (self.beat_ns or self._since_ns)) / 1e9
        nodes = Counter(node.agent for node in reading.status.nodes)
        joined, lost = nodes[AgentState.JOINED.value], nodes[AgentState.LOST.value]
        age_s, lease_s = self._slurm_age_s(reading, now_ns), reading.status.lease_ms / 1000
        return Health(
            {
                "lease": (silent_s < lease_s, f"renewed {silent_s:.1f} s ago, lasts {lease_s:g} s"),
                "slurm": (False, "has not answered yet")
                if age_s is None
                else (age_s < SLURM_PATIENCE_S, f"answered {age_s:.1f} s ago"),
                "agents": (
                    joined > lost,
                    f"{counted_of(joined, len(reading.status.nodes), 'node')} joined, {lost} lost",
                ),
            }
        )

    def figures(self) -> Figures:
        """See ``MetricsSource``."""
        reading, now_ns = self._reading, self.clock()
        up: dict[str, Mapping[tuple[str, ...], float] | float] = {
            "gangd_up_seconds": (now_ns - self._since_ns) / 1e9,
            "gangd_healthy": self.health().figures(),
            "gangd_slurm_age_seconds": UNKNOWN,
            "gangd_switch_lost_ratio": UNKNOWN,
        }
        decisions: Figures = {
            "gangd_decision_seconds": self.decisions.buckets(),
            "gangd_decision_cpu_seconds": self.decisions_cpu.buckets(),
        }
        if reading is None:
            return {**up, **decisions}
        status = reading.status
        age_s = self._slurm_age_s(reading, now_ns)
        nodes = Counter(node.agent for node in status.nodes)
        alarms = Counter(alarm.kind for alarm in status.alarms)
        return {
            **up,
            "gangd_info": {(version("osub"), str(status.dry_run).lower()): 1.0},
            **decisions,
            "gangd_nodes": _labelled(nodes),
            "gangd_gangs": _labelled(reading.gangs),
            "gangd_jobs_running": status.running_jobs,
            "gangd_jobs_shared": status.shared_jobs,
            "gangd_jobs_held": _labelled(reading.held),
            "gangd_slice_seconds": status.quantum_ms / 1000,
            "gangd_slice_asked_seconds": status.asked_quantum_ms / 1000,
            "gangd_lookahead_slices": status.lookahead,
            "gangd_switch_lost_ratio": UNKNOWN if status.lost_share is None else status.lost_share,
            "gangd_lease_seconds": status.lease_ms / 1000,
            "gangd_slurm_age_seconds": UNKNOWN if age_s is None else age_s,
            "gangd_slurm_failures_total": reading.slurm_failures,
            "gangd_ends_moved_total": reading.ends_moved,
            "gangd_ends_refused_total": reading.ends_refused,
            "gangd_messages_dropped_total": _labelled(status.dropped),
            "gangd_agent_faults_total": _labelled(reading.faults),
            "gangd_alarms": _labelled(alarms),
            "gangd_connections": reading.connections,
            "gangd_record_bytes": reading.record_bytes,
        }

    @staticmethod
    def _slurm_age_s(reading: ControllerReading, now_ns: int) -> float | None:
        known_s = reading.status.slurm_age_s
        return None if known_s is None else known_s + (now_ns - reading.at_ns) / 1e9


def _labelled(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): float(count) for name, count in counts.items()}
