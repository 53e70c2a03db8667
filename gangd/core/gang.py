"""One gang, where its jobs are, and what the next controller needs to know of it.

One gang: its jobs, what is known about it, and which input of its state machine follows from that.

``LostTime`` is the account of how long it was suspended, by what its nodes report and never more than was
planned. The rule: the ranks of a parallel job wait for each other, so one that is suspended stops them all.
In each slice a gang has lost the most that any of its nodes lost there, once, however many nodes tell of it.
A slice that no node tells of has lost nothing: it was planned to be held, but its agent was away, only tried
(``--dry-run``), or spared it. And the sum is never above the time for which the gang was planned to be held:
whatever a node claims, it can give its jobs no more than what the schedule took from them.

What the next controller needs to know of a gang to go on with it: its demand, its place in the rotation.

What is read back may be damaged: everything is brought within bounds, and nothing of it can freeze anybody
for longer, for slices are composed anew from it by the same rules.

Where jobs are, and where their tasks run.

``NodePresence`` goes by the newest snapshot: it is what a node may speak of. ``Launches`` goes by the agents,
each of which tells once that a job's tasks run on its node. It may do so before a snapshot has the job, so
what it said is remembered for a while; how much, is bounded for each node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from gangd.core.cores import CoreSet
from gangd.core.demand import Demand, Level
from gangd.core.gang_settings import SECOND
from gangd.core.scheduler_events import ExemptKind, GangJobState, HoldMode, JobView, TrackMember
from gangd.core.slice_timing import TunedTurn
from gangd.core.states import GangInput, GangState


@dataclass(frozen=True, slots=True)
class Remembered:
    """A gang when it was seen last.

    Attributes
    ----------
    gang
        Its id.
    jobs
        Its jobs, each with its wall-clock start: another start is another run, of which nothing is known.
    level, history, flaps, multi
        Its demand, see ``demand.Demand``.
    launched
        Whether its tasks ran on all of its nodes: then it has no launch grace any more.
    lead
        Virtual time ahead of the last of its group.
    wait
        Slices that it had waited.
    """

    gang: int
    jobs: tuple[tuple[int, float], ...]
    level: str = "busy"
    history: int = 0
    flaps: int = 0
    multi: bool = False
    launched: bool = False
    lead: int = 0
    wait: int = 0


NOWHERE = CoreSet(b"", ())
CORE_BYTES = 4

WINDOW_NS = 10_000_000_000
_KEPT = 128
"""Slices whose reports are kept: agents keep half as many while they cannot report."""


@dataclass(slots=True, eq=False)
class Gang:
    """A job, or the components of a heterogeneous job.

    Attributes
    ----------
    gang, slot
        Its id and its number in the arrays.
    views
        Its jobs by id, as Slurm sees them.
    cores
        All cores of all its jobs.
    weight
        Greatest weight of its jobs.
    quantum_ns
        Longest quantum of its jobs, 0 for one slice.
    hold
        Its hold mode: it yields if all of its jobs do.
    may_freeze
        Whether it may be frozen although it yields.
    widths
        Cores of its jobs on each node, as far as that was asked for.
    tuned
        Turn and hold mode by what was measured of its group; None for what its jobs say.
    since_ns
        When it appeared.
    launched
        Whether its tasks are known to run on all of its nodes.
    lost
        The time for which it stood still.
    deferred
        Whether it is suspended as a node of it is short of memory.
    missing
        How many of its nodes have no joined agent.
    dying_ns
        When an agent last said that a deadly signal waits for a job of it, until Slurm says that it runs.
    strange_ns
        When an agent last found a freeze state that it did not leave, until Slurm says that it runs.
    strange_nodes
        The nodes of those agents.
    ended
        Places (job, node number) without processes.
    stirred
        Slice in which it began to wake.
    exempt, exempted
        The exemption that was sent to the agents, and for which jobs.
    has_shared
        Whether it was said that it shares a core.
    """

    gang: int
    slot: int
    views: dict[int, JobView]
    since_ns: int
    state: GangState = GangState.NEW
    demand: Demand = field(default_factory=Demand)
    lost: LostTime = field(init=False)
    launched: bool = False
    missing: int = 0
    deferred: bool = False
    dying_ns: int | None = None
    strange_ns: int | None = None
    strange_nodes: list[str] = field(default_factory=list)
    ended: set[tuple[int, int]] = field(default_factory=set)
    stirred: int = 0
    has_shared: bool = False
    exempt: ExemptKind | None = None
    exempted: TrackMember | None = None
    member: TrackMember = field(init=False)
    cores: CoreSet = NOWHERE
    widths: dict[int, dict[int, int]] = field(default_factory=dict)
    tuned: TunedTurn | None = None
    terminating: bool = field(init=False)
    suspended: bool = field(init=False)
    opt_out: bool = field(init=False)
    weight: float = field(init=False)
    quantum_ns: int = field(init=False)
    places: int = field(init=False)
    hold: HoldMode = field(init=False)
    may_freeze: bool = field(init=False)

    def __post_init__(self) -> None:
        self.lost, self.member = LostTime(self.since_ns), TrackMember(self.gang, ())
        self.describe(self.views)

    def describe(self, views: dict[int, JobView]) -> None:
        """Take in how Slurm sees the jobs now."""
        self.views = views
        self.terminating = self.suspended = self.opt_out = False
        self.weight = 0.0
        self.quantum_ns = 0
        self.places = 0
        self.hold = HoldMode.YIELD
        for view in views.values():
            if view.state is GangJobState.TERMINATING:
                self.terminating = True
            elif view.state is GangJobState.SUSPENDED:
                self.suspended = True
            if view.opt_out:
                self.opt_out = True
            if view.hold is HoldMode.FREEZE:
                self.hold = HoldMode.FREEZE
            self.weight = max(self.weight, view.weight)
            self.quantum_ns = max(self.quantum_ns, view.quantum_ns or 0)
            self.places += len(view.cores.nodes)
        self.may_freeze = all(view.may_freeze for view in views.values())
        if self.tuned is not None:
            self.quantum_ns = max(self.quantum_ns, self.tuned.turn_ns)
            if self.tuned.freezes and self.may_freeze:
                self.hold = HoldMode.FREEZE
        if self.deferred:
            self.hold = HoldMode.FREEZE
        jobs = tuple([(job, view.cores) for job, view in views.items()])
        if self.member.jobs != jobs:
            self.cores, self.widths = _union(jobs), {}
        if self.member.jobs != jobs or self.member.hold is not self.hold:
            self.member = TrackMember(self.gang, jobs, self.hold)

    @property
    def needs_turns(self) -> bool:
        """Whether gangs of its kind must not run at the same time on its cores.

        Processes of one core wait for no rank elsewhere: the kernel shares that core among them as well as
        slices could, and finer. A frozen gang is to leave caches and memory alone, so it takes turns.
        """
        return self.hold is HoldMode.FREEZE or len(self.cores.packed) > CORE_BYTES

    @property
    def exemption(self) -> ExemptKind | None:
        """Why the gang must not be held in its present state; None if it may be.

        Only what Slurm itself says to be suspended is left frozen, for Slurm will thaw all of it. Who else
        touched a gang may have touched a part of it, and the rest is ours to thaw.
        """
        if self.state is GangState.TERMINATING:
            return ExemptKind.TERMINATING
        if self.state is GangState.FOREIGN:
            return ExemptKind.SUSPENDED if self.suspended else ExemptKind.FREE
        return ExemptKind.FREE if self.state is GangState.FREE else None

    @property
    def is_suspect(self) -> bool:
        """Whether an agent found what only Slurm can explain."""
        return self.strange_ns is not None or self.dying_ns is not None

    def slurm_answered(self, asked_ns: int, lease_ns: int) -> None:
        """Slurm was asked at ``asked_ns`` and said what ``views`` hold: older suspicions are settled.

        An agent repeats that a job is dying in each report; not to have said so for a lease takes it back.
        """
        if self.strange_ns is not None and asked_ns > self.strange_ns:
            self.strange_ns, self.strange_nodes = None, []
        if self.dying_ns is not None and asked_ns > self.dying_ns + lease_ns:
            self.dying_ns = None

    def is_settled(self, now_ns: int, grace_ns: int) -> bool:
        """Whether its launch grace is over, or it left the state in which that counts.

        The grace ends with the launch, and after ``grace_ns`` at the latest. A gang that yields needs none:
        its launch goes on meanwhile.
        """
        if self.state is not GangState.NEW or self.launched or self.hold is HoldMode.YIELD:
            return True
        return now_ns >= self.since_ns + grace_ns

    def following(self, now_ns: int, grace_ns: int, shares: bool) -> GangInput | None:
        """Next input of the state machine that the facts call for; None if the state agrees with them."""
        state = self.state
        if state is GangState.TERMINATING:
            return None
        if self.terminating:
            return GangInput.TERMINATE
        if self.is_suspect or self.suspended:
            return None if state is GangState.FOREIGN else GangInput.SUSPEND
        if state is GangState.FOREIGN:
            return GangInput.RESUME
        if self.missing or self.opt_out:
            return None if state is GangState.FREE else GangInput.RELEASE
        if state is GangState.FREE:
            return GangInput.RECLAIM
        if state is GangState.NEW:
            return GangInput.SETTLE if self.is_settled(now_ns, grace_ns) else None
        if self.deferred:
            return None if state is GangState.DEFERRED else GangInput.DEFER
        if state is GangState.DEFERRED:
            return GangInput.RELIEVE
        return self._demanded(shares)

    def _demanded(self, shares: bool) -> GangInput | None:
        state, level = self.state, self.demand.level
        if not shares:
            return None if state is GangState.SOLO else GangInput.UNSHARE
        if state is GangState.SOLO:
            return GangInput.SHARE_IDLE if level is Level.IDLE else GangInput.SHARE_BUSY
        if state is GangState.IDLE:
            return None if level is Level.IDLE else GangInput.STIR
        if level is Level.IDLE:
            return GangInput.REST
        if state is GangState.WAKING and level is Level.BUSY:
            return GangInput.CONFIRM
        return None


def _union(jobs: tuple[tuple[int, CoreSet], ...]) -> CoreSet:
    if len(jobs) == 1:
        return jobs[0][1]
    cores = np.unique(np.concatenate([cores.numbers() for _, cores in jobs]))
    nodes = {node for _, cores in jobs for node in cores.nodes}
    return CoreSet(cores.astype(np.int32).tobytes(), tuple(sorted(nodes)))


@dataclass(slots=True)
class LostTime:
    """The account of one gang.

    Attributes
    ----------
    reported_ns
        Sum over the slices of the most that any node reported.
    planned_ns
        For how long it was planned to be held.
    taken_ns
        What was taken from here already.
    since_ns
        When the account was opened.
    """

    since_ns: int = 0
    reported_ns: int = 0
    planned_ns: int = 0
    taken_ns: int = 0
    _slices: dict[int, int] = field(default_factory=dict)
    _oldest: int = 0
    _window: tuple[int, int] = (0, 0)
    _before: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self._window = self._before = (self.since_ns, 0)

    def tell(self, number: int, lost_ns: int, length_ns: int, *, again: bool) -> None:
        """Take in what one node lost in a slice.

        Parameters
        ----------
        number
            The slice; one that is too old to be remembered counts for nothing.
        lost_ns
            For how long a job of the gang stood still there; what is above ``length_ns`` is cut off.
        length_ns
            Length of the slice.
        again
            Whether other nodes may tell of the same slice.
        """
        lost_ns = min(lost_ns, length_ns)
        if not again:
            self.reported_ns += lost_ns
            return
        if number < self._oldest:
            return
        known_ns = self._slices.get(number, 0)
        if lost_ns > known_ns:
            self._slices[number] = lost_ns
            self.reported_ns += lost_ns - known_ns
        if len(self._slices) > 2 * _KEPT:
            self._oldest = max(self._slices) - _KEPT
            self._slices = {one: ns for one, ns in self._slices.items() if one >= self._oldest}

    def plan(self, held_ns: int) -> None:
        """Add time for which the gang was planned to be held."""
        self.planned_ns += held_ns

    def take(self, now_ns: int) -> int:
        """Return what was lost since this was asked last, in ns."""
        lost_ns = min(self.reported_ns, self.planned_ns) - self.taken_ns
        self.taken_ns += lost_ns
        if now_ns >= self._window[0] + WINDOW_NS:
            self._before, self._window = self._window, (now_ns, self.taken_ns)
        return lost_ns

    def share(self, now_ns: int) -> float:
        """Share of its time of late that the gang lost: of the last 10 to 20 seconds."""
        since_ns, taken_ns = self._before
        return min(1.0, (self.taken_ns - taken_ns) / max(1, now_ns - since_ns))


KEPT_NS = 10 * SECOND
MOST_A_NODE = 4096


class NodePresence(Enum):
    """What a node has to do with a job."""

    HERE = "here"
    LEFT = "left"
    """It was there: what is said of it may have been on the way."""
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"
    """No snapshot has the job: it has just begun or ended, or there is none."""


class Launches:
    """Jobs whose tasks run on a node, and since when that is known."""

    def __init__(self) -> None:
        self._noted: dict[int, dict[int, int]] = {}
        self._clear_ns = 0

    def note(self, node: int, job: int, now_ns: int) -> None:
        """Remember that the tasks of a job run on a node."""
        noted = self._noted.setdefault(node, {})
        if job in noted or len(noted) < MOST_A_NODE:
            noted[job] = now_ns

    def complete(self, gang: Gang) -> bool:
        """Whether the tasks of all jobs of a gang run on all of their nodes."""
        return all(
            job in self._noted.get(node, ()) for job, view in gang.views.items() for node in view.cores.nodes
        )

    def forget(self, gang: Gang) -> None:
        """Drop what is known of a gang that is gone: its jobs may run anew."""
        for job, view in gang.views.items():
            for node in view.cores.nodes:
                self._noted.get(node, {}).pop(job, None)

    def clear(self, now_ns: int) -> None:
        """Drop now and then what is older than any launch."""
        if now_ns < self._clear_ns:
            return
        self._clear_ns = now_ns + KEPT_NS
        for node, noted in list(self._noted.items()):
            kept = {job: noted_ns for job, noted_ns in noted.items() if now_ns < noted_ns + KEPT_NS}
            if kept:
                self._noted[node] = kept
            else:
                del self._noted[node]
