"""One gang: its jobs, what is known about it, and which input of its state machine follows from that."""

from __future__ import annotations

import numpy as np

from gangd.core.jobs.demand import Demand, Level
from gangd.core.jobs.lost import LostTime
from gangd.core.terms.cores import CoreSet
from gangd.core.terms.scheduler_commands import ExemptKind, Member
from gangd.core.terms.scheduler_events import Hold, JobState, JobView
from gangd.core.terms.states import GangInput, GangState

NOWHERE = CoreSet(b"", ())
CORE_BYTES = 4


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
        How it stands back: it yields if all of its jobs do.
    since_ns
        When it appeared.
    launched
        Whether its tasks are known to run on all of its nodes.
    lost
        The time for which it stood still.
    missing
        How many of its nodes have no joined agent.
    dying_ns
        When an agent last said that a deadly signal waits for a job of it, until Slurm says that it runs.
    strange_ns
        When an agent last found a freeze state that it did not leave, until Slurm says that it runs.
    ended
        Places (job, node number) without processes.
    stirred
        Slice in which it began to wake.
    exempt, exempted
        The exemption that the agents were told of, and for which jobs.
    has_shared
        Whether it was said that it shares a core.
    """

    __slots__ = (
        "cores",
        "demand",
        "dying_ns",
        "ended",
        "exempt",
        "exempted",
        "gang",
        "has_shared",
        "hold",
        "launched",
        "lost",
        "member",
        "missing",
        "opt_out",
        "places",
        "quantum_ns",
        "since_ns",
        "slot",
        "state",
        "stirred",
        "strange_ns",
        "suspended",
        "terminating",
        "views",
        "weight",
    )

    def __init__(self, gang: int, slot: int, views: dict[int, JobView], now_ns: int) -> None:
        self.gang = gang
        self.slot = slot
        self.state = GangState.NEW
        self.demand = Demand()
        self.since_ns = now_ns
        self.launched = False
        self.lost = LostTime(now_ns)
        self.missing = 0
        self.dying_ns: int | None = None
        self.strange_ns: int | None = None
        self.ended: set[tuple[int, int]] = set()
        self.stirred = 0
        self.has_shared = False
        self.exempt: ExemptKind | None = None
        self.exempted: Member | None = None
        self.member = Member(gang, ())
        self.cores = NOWHERE
        self.describe(views)

    def describe(self, views: dict[int, JobView]) -> None:
        """Take in how Slurm sees the jobs now."""
        self.views = views
        self.terminating = self.suspended = self.opt_out = False
        self.weight = 0.0
        self.quantum_ns = 0
        self.places = 0
        self.hold = Hold.YIELD
        for view in views.values():
            if view.state is JobState.TERMINATING:
                self.terminating = True
            elif view.state is JobState.SUSPENDED:
                self.suspended = True
            if view.opt_out:
                self.opt_out = True
            if view.hold is Hold.FREEZE:
                self.hold = Hold.FREEZE
            self.weight = max(self.weight, view.weight)
            self.quantum_ns = max(self.quantum_ns, view.quantum_ns or 0)
            self.places += len(view.cores.nodes)
        jobs = tuple([(job, view.cores) for job, view in views.items()])
        if self.member.jobs != jobs:
            self.cores = _union(jobs)
        if self.member.jobs != jobs or self.member.hold is not self.hold:
            self.member = Member(self.gang, jobs, self.hold)

    @property
    def needs_turns(self) -> bool:
        """Whether its like must not run beside it on its cores.

        Processes of one core wait for nobody elsewhere: the kernel shares that core among them as well as
        slices could, and finer. A frozen gang is to leave caches and memory alone, so it takes turns.
        """
        return self.hold is Hold.FREEZE or len(self.cores.packed) > CORE_BYTES

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
            self.strange_ns = None
        if self.dying_ns is not None and asked_ns > self.dying_ns + lease_ns:
            self.dying_ns = None

    def is_settled(self, now_ns: int, grace_ns: int) -> bool:
        """Whether its launch grace is over, or it left the state in which that counts.

        The grace ends with the launch, and after ``grace_ns`` at the latest. A gang that yields needs none:
        its launch goes on meanwhile.
        """
        if self.state is not GangState.NEW or self.launched or self.hold is Hold.YIELD:
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
