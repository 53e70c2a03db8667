"""What the scheduler is given, and what it orders.

Events of the core. Each has ``now_ns``, the controller's CLOCK_MONOTONIC, never going back.

What comes for each node in each slice is a named tuple, which is made in a third of the time of a dataclass.

What the core wants done. The order of a list of commands matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangd.core.cores import CoreSet
from gangd.core.gang_settings import CoreSettings


class GangJobState(StrEnum):
    """What Slurm says of a job that holds its nodes."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    TERMINATING = "terminating"


class HoldMode(StrEnum):
    """How a gang is held in slices that it does not own."""

    FREEZE = "freeze"  # it does not run at all
    YIELD = "yield"  # it runs at the lowest priority: what the owner of the slice leaves


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as a snapshot sees it. Pass the same object again while nothing changed: it is faster.

    Attributes
    ----------
    job
        Slurm's raw job id.
    gang
        Equal for all components of a heterogeneous job (the leader's id); else the job's own id.
    cores
        From ``CoreMap.pack``.
    start_s
        Wall-clock start in seconds; another start under the same id is another run (a requeue).
    end_s
        Wall-clock end that Slurm enforces, None if unlimited.
    latest_s
        Instant beyond which its end must not be moved: what it is owed is not given then. None for none.
    weight
        Share relative to others; 2 gets twice the slices of 1 where they contend.
    opt_out
        It must not be held.
    hold
        How it is held; a gang of several jobs yields only if all of them do.
    quantum_ns
        For how long it runs at a stretch when it is its turn, in whole slices; None for one slice.
    may_freeze
        Whether it may be frozen where slices tune themselves although ``hold`` says that it yields.
    memory_kib
        Memory that it asked for on a node, the most of any of its nodes; None where memory is no resource.
    """

    job: int
    gang: int
    cores: CoreSet
    state: GangJobState = GangJobState.RUNNING
    start_s: float = 0.0
    end_s: float | None = None
    latest_s: float | None = None
    weight: float = 1.0
    opt_out: bool = False
    hold: HoldMode = HoldMode.FREEZE
    quantum_ns: int | None = None
    may_freeze: bool = False
    memory_kib: int | None = None


@dataclass(frozen=True, slots=True)
class SlurmSnapshot:
    """All jobs that hold nodes. ``asked_ns``: when Slurm was asked; ``wall_s``: wall clock at ``now_ns``."""

    now_ns: int
    asked_ns: int
    wall_s: float
    jobs: tuple[JobView, ...]


@dataclass(frozen=True, slots=True)
class SlurmChanges:
    """A snapshot by its difference to the one before: jobs that are new or other, and those that are gone."""

    now_ns: int
    asked_ns: int
    wall_s: float
    jobs: tuple[JobView, ...]
    gone: tuple[int, ...]


class CpuSample(NamedTuple):
    """CPU time and run-queue delay of a job on one node over ``span_us`` in which it was not frozen."""

    job: int
    cpu_us: int
    delay_us: int
    span_us: int
    tasks: int
    held_us: int = 0

    @property
    def share(self) -> float:
        """Demand in cores: what it used and what it waited for, over the time of the observation."""
        return (self.cpu_us + self.delay_us) / self.span_us


class SliceUse(NamedTuple):
    """A slice as a node applied it: how late, how long the switch took, who was held, what was sampled."""

    number: int
    skew_us: int
    freeze_us: int
    held: tuple[int, ...]  # frozen
    samples: tuple[CpuSample, ...]
    yielding: tuple[int, ...] = ()


class JobMemory(NamedTuple):
    """Memory of a job on one node: now, and the most so far."""

    job: int
    used_kib: int
    peak_kib: int


class NodeMemory(NamedTuple):
    """Memory of a node.

    Attributes
    ----------
    available_kib
        What can be allocated there without paging.
    stall
        Share of the last 10 s for which some task waited for memory; None where the kernel does not tell.
    stalled_us
        For how long in all one did, since the agent began.
    jobs
        Memory of the jobs there.
    """

    available_kib: int
    stall: float | None = None
    stalled_us: int = 0
    jobs: tuple[JobMemory, ...] = ()


class NodeReport(NamedTuple):
    """What an agent reports.

    Attributes
    ----------
    slices
        Slices since the last report.
    ended
        Jobs without a process on this node any more.
    dying
        Jobs with SIGTERM or SIGKILL pending; repeated in each report for as long as the agent holds this.
    strange, acts
        Jobs whose freeze state is not the one that the agent left, and what was found of each.
    born
        Jobs whose first process was found on this node.
    alone
        What jobs did since the last report that no slice names: they share no core as far as is known.
    rtt_us
        Round trip between the agent and the controller.
    launched
        Jobs whose tasks have begun to run on this node: each is named once, maybe before a snapshot has it.
    memory
        Memory of the node; None where it was not measured since the last report.
    """

    now_ns: int
    node: str
    slices: tuple[SliceUse, ...] = ()
    ended: tuple[int, ...] = ()
    dying: tuple[int, ...] = ()
    strange: tuple[int, ...] = ()
    born: tuple[int, ...] = ()
    alone: tuple[CpuSample, ...] = ()
    launched: tuple[int, ...] = ()
    rtt_us: int = 0
    acts: tuple[str, ...] = ()
    memory: NodeMemory | None = None


@dataclass(frozen=True, slots=True)
class AgentJoined:
    """An agent said hello; ``is_another`` where another one of its node counted before."""

    now_ns: int
    node: str
    is_another: bool = False


@dataclass(frozen=True, slots=True)
class AgentLost:
    """An agent left or obeys another controller; silence is noticed by the core itself."""

    now_ns: int
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes. One in each slice, soon after its start; the core decides on slices at ticks only.

    More are allowed, where something is to count sooner; fewer, as long as nothing is.

    ``heard_ns``: until when everything that agents said is known, where that is not now. Whose words wait to
    be read is not silent.
    """

    now_ns: int
    heard_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Reload:
    """New settings; those that shape slices count from the first slice that is not final."""

    now_ns: int
    settings: CoreSettings


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The controller leaves: everything is thawed; later events are refused."""

    now_ns: int


Event = SlurmSnapshot | SlurmChanges | NodeReport | AgentJoined | AgentLost | Tick | Reload | Shutdown


@dataclass(frozen=True, slots=True, eq=False)
class TrackMember:
    """A gang in a track: its id, its jobs with their cores, how it is held.

    The same object while nothing changed.
    """

    gang: int
    jobs: tuple[tuple[int, CoreSet], ...]
    hold: HoldMode = HoldMode.FREEZE


@dataclass(frozen=True, slots=True, eq=False)
class TrackPlan:
    """The slices of one group of gangs that contend with each other.

    A track of one gang, which always runs, asks for samples only: it shares cores, and it is idle, wakes,
    or no gang contends with it now.

    Attributes
    ----------
    name
        Least gang id of the group; unique among the tracks in force.
    first_slice
        Slice of the first row of ``run``.
    repeat
        Whether the rows go round; else everything runs past the last one.
    members
        The gangs, by column of ``run``.
    table, rows, column
        Where ``run`` is cut out of a larger array, see ``run``.
    """

    name: int
    first_slice: int
    repeat: bool
    members: tuple[TrackMember, ...]
    table: NDArray[np.bool_]
    rows: list[int]
    column: int

    @property
    def run(self) -> NDArray[np.bool_]:
        """Shape (slices, gangs): True where the gang runs, False where it is held."""
        cut: NDArray[np.bool_] = self.table[self.rows, self.column : self.column + len(self.members)]
        return cut


@dataclass(frozen=True, slots=True)
class Publish:
    """Tracks that begin or change at ``first_slice``, and names of those that end there.

    Slices below ``first_slice`` are final and as published before. With ``rebase`` the slices from
    ``first_slice`` on have a new length: every node needs a whole plan.
    """

    first_slice: int
    tracks: tuple[TrackPlan, ...]
    drop: tuple[int, ...]
    rebase: bool = False


class ExemptKind(StrEnum):
    """Why jobs are not to be held; see ``gangd.wire.Exempt``."""

    TERMINATING = "terminating"
    SUSPENDED = "suspended"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Exempt:
    """Begin (``on``) or end an exemption of all jobs of a gang, at once and on all of its nodes."""

    member: TrackMember
    kind: ExemptKind
    on: bool


@dataclass(frozen=True, slots=True)
class ThawAll:
    """Thaw everything everywhere, and hold nothing any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class MoveEnd:
    """Set a job's end (wall-clock seconds) later.

    Attributes
    ----------
    end_s
        The end that it is to have.
    due_s
        The end that it has, as far as is known: which of several moves is urgent.
    lost_s
        How much of its time it has lost so far.
    """

    job: int
    end_s: float
    due_s: float
    lost_s: float


class SliceRow(NamedTuple):
    """One row of the slice record: what a job did on a node in a slice. ``start_ns`` as in events.

    A row of the role ``unattended`` is of some time, in whole or broken slices, in which no agent acted.
    """

    number: int
    start_ns: int
    length_ns: int
    job: int
    node: str
    role: str  # run, held, leftover, idle, free, unattended
    cpu_us: int | None
    skew_us: int | None
    freeze_us: int | None


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Rows for the slice record."""

    rows: tuple[SliceRow, ...]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something an operator should know. Raised once until ``cleared``.

    ``job`` and ``nodes`` are what caused it, where that is known: ``text`` does not say them again.
    """

    kind: str
    subject: str
    text: str
    cleared: bool = False
    job: int | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskSlurm:
    """Agents saw what the last snapshot does not know: take a new one now."""

    reason: str


@dataclass(frozen=True, slots=True)
class BeganToShare:
    """Jobs of a gang that shares a core with another one: said once of each gang."""

    jobs: tuple[int, ...]


Command = Publish | Exempt | ThawAll | MoveEnd | RecordRows | Alarm | AskSlurm | BeganToShare
