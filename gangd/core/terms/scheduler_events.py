"""Events of the core. Each has ``now_ns``, the controller's CLOCK_MONOTONIC, never going back.

What comes for each node in each slice is a named tuple, which is made in a third of the time of a dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gangd.core.terms.cores import CoreSet
from gangd.core.terms.gang_settings import CoreSettings


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
