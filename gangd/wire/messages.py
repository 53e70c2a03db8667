"""Messages between the controller and its agents, their versions and fields, and what a peer can do wrong.

Versions of the protocol, and how successive versions understand each other.

A cluster is upgraded node by node, so for a while agents and controllers of two versions meet. They may be
one version apart:

* *Up* (agent to controller): the controller takes messages of the version before its own, of its own, and of
  the one after. Fields that it does not know are ignored: they tell more of what an agent saw, and nothing
  that the controller knows means something else for them. So a field may be added upwards, and none may
  change its meaning.
* *Down* (controller to agent, plans and answers): the controller speaks to each node the version of its
  hello, or its own where that is lower; to all nodes at once it speaks the oldest. An agent takes its own
  version and the one before. A field that it does not know is refused, for it could change who is frozen:
  what an agent does not understand it must not half obey. So a controller sends a new field only to who
  speaks its version.
* An agent begins with its own version. Where it is not answered it tries the one before now and then.

History: 2, strict both ways; 3, as said here, agents keep the plan of a former controller; 4, plans say how
many cores jobs have, and whether memory is measured.

The bounded types of message fields: every number has a range, every list and text a greatest length.

Instants and lengths of time are integer nanoseconds (``_ns``) or microseconds (``_us``). Instants are on
the *controller's* ``CLOCK_MONOTONIC`` unless a field says otherwise.

Messages from the controller to its agents, on PUB/SUB.

Every message names the controller, its epoch and a sequence number, when it was sent, and the lease: for
``lease_ns`` after its arrival (measured on the agent's own clock) the agent may hold jobs. Slices are
numbered from the controller's start. A plan is a set of *tracks*, one for each group of jobs that share
cores; each track repeats its own list of slices, so that a steady schedule is sent once. A revision has a
higher epoch and begins at ``first_slice``, which lies beyond every earlier message's ``horizon``: a slice
below the horizon never changes. A job that no track holds runs.

Messages on the DEALER (agent) / ROUTER (controller) pair: joining, clock probes, reports.

The agent's key says which node it is; an answer goes back over the connection on which the question came.
Directions are given with each message.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from foundation.errors import PeerError

VERSION = 4
OLDEST = VERSION - 1
NEWEST = VERSION + 1
"""The newest that is understood upwards."""


def common(peer_version: int) -> int:
    """Return the version in which to speak with a peer of version ``peer_version``."""
    return min(VERSION, peer_version)


SECOND_NS = 1_000_000_000
MAX_INSTANT_NS = 2**62  # 146 years of uptime: arithmetic on instants stays inside 63 bits
MAX_COUNT = 2**53
MAX_JOBS_PER_LIST = 4096
MAX_SLICES = 256
MAX_TRACKS = 1024
MAX_FRAME_BYTES = 1 << 20

NodeName = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"\A[A-Za-z0-9._-]+\Z")]
Text = Annotated[str, msgspec.Meta(max_length=512)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Incarnation = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]

JobId = Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]
Jobs = Annotated[tuple[JobId, ...], msgspec.Meta(max_length=MAX_JOBS_PER_LIST)]

InstantNs = Annotated[int, msgspec.Meta(ge=0, le=MAX_INSTANT_NS)]
OffsetNs = Annotated[int, msgspec.Meta(ge=-MAX_INSTANT_NS, le=MAX_INSTANT_NS)]
LengthUs = Annotated[int, msgspec.Meta(ge=0, le=86_400_000_000)]
SkewUs = Annotated[int, msgspec.Meta(ge=-86_400_000_000, le=86_400_000_000)]
GraceNs = Annotated[int, msgspec.Meta(ge=0, le=60 * SECOND_NS)]
LongestNs = Annotated[int, msgspec.Meta(ge=20_000_000, le=60 * SECOND_NS)]
QuantumNs = Annotated[int, msgspec.Meta(ge=20_000_000, le=5 * SECOND_NS)]
LeaseNs = Annotated[int, msgspec.Meta(ge=SECOND_NS // 10, le=60 * SECOND_NS)]

Cores = Annotated[int, msgspec.Meta(ge=1, le=65_536)]

HoldKind = Literal["freeze", "yield"]
"""How a job is held: it does not run at all, or takes only what the owner of the slice leaves."""

Epoch = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Sequence = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
SliceNumber = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


def printable(text: str) -> str:
    """Return a peer's text for a log or a terminal: what is not printed plainly becomes a question mark."""
    return text if text.isprintable() else "".join([one if one.isprintable() else "?" for one in text])


class WireError(PeerError):
    """Root of all wire faults; ``kind`` is the name under which they are counted."""

    kind = "wire"


class MalformedError(WireError):
    """The bytes are no message of the protocol: bad framing, unknown type, value outside its bounds."""

    kind = "malformed"


class VersionError(WireError):
    """The message is of another protocol version; upgrade the older side."""

    kind = "version"


class WrongNodeError(WireError):
    """A plan for another node arrived, or a message whose sender is not the node that it names."""

    kind = "wrong_node"


class ReplayedError(WireError):
    """The (epoch, sequence) pair did not grow: a message was replayed, reordered or delivered twice."""

    kind = "replayed"


class ForeignControllerError(WireError):
    """A controller other than the one being followed, and not a later one, speaks: two run by mistake."""

    kind = "foreign_controller"


class MissedPlanError(WireError):
    """A plan was lost on the way: the message builds on one that never came. Thaw and ask ``Resend``."""

    kind = "missed_plan"


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    """Root of every message: ``version`` is the protocol's, see ``versions``."""

    version: Annotated[int, msgspec.Meta(ge=1, le=255)] = VERSION


class ControllerIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Which controller speaks: a random 128-bit ``incarnation``, and its wall-clock start (ns).

    Of two that speak, the one with the later ``(started_ns, incarnation)`` is followed.
    """

    incarnation: Incarnation
    started_ns: InstantNs


class SliceSets(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """One slice of a track on this node: the jobs that own it and the jobs that are held in it.

    A job that is in ``run`` of every slice of its track is there to be sampled.
    """

    run: Jobs
    held: Jobs


class JobCores(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """How many cores of this node Slurm has allocated to a job."""

    job: JobId
    cores: Cores


AllocatedCores = (
    Annotated[tuple[JobCores, ...], msgspec.Meta(max_length=4 * MAX_JOBS_PER_LIST)] | msgspec.UnsetType
)


class JobHold(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """How a job of a track is held."""

    job: JobId
    kind: HoldKind


class Track(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """The slices of one group of jobs that share cores; tracks of a plan are independent of each other.

    Slice ``n >= first_slice`` of the track is ``slices[(n - first_slice) % len(slices)]`` if ``repeat``;
    otherwise ``slices[n - first_slice]``, and past the end every job of the track runs. A job that ``holds``
    does not name is frozen when it is held.
    """

    track: JobId  # least job id of the group: a name, unique within a plan
    first_slice: SliceNumber
    repeat: bool
    slices: Annotated[tuple[SliceSets, ...], msgspec.Meta(min_length=1, max_length=MAX_SLICES)]
    holds: Annotated[tuple[JobHold, ...], msgspec.Meta(max_length=MAX_JOBS_PER_LIST)] = ()


class ExemptJobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Jobs of this node that no track may hold; in force on arrival, not at a slice's instant.

    Parameters
    ----------
    never_freeze
        They terminate, as Slurm says. Thaw them if this agent froze them, and never freeze them again,
        whatever later messages say, until they are gone from this node.
    opt_out
        They or their site do not want it, a node of theirs has no agent, or another process stopped them
        without Slurm. Thaw them if this agent froze them; do not freeze them while they are listed.
    suspended
        Slurm has suspended them. Neither freeze nor thaw them, also not when the lease ends, and
        forget that this agent froze them: Slurm resumes every step of a job that it suspended.
    """

    never_freeze: Jobs = ()
    opt_out: Jobs = ()
    suspended: Jobs = ()


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """How holding is bounded on every node alike, in force on arrival.

    Parameters
    ----------
    longest_ns
        Nothing is held for longer than this without a break.
    grace_ns
        A step that begins in a job that is frozen is not frozen for this long, so that its launch can
        complete.
    newcomers_yield
        Whether a job that begins on shared cores yields until a schedule names it, for a lease at most.
    """

    longest_ns: LongestNs
    grace_ns: GraceNs
    newcomers_yield: bool = False


class MemoryTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """What an agent does about memory.

    Parameters
    ----------
    short_kib
        Where less is available the node is short of memory, and says so at once.
    reclaim
        Whether frozen jobs are paged out then.
    """

    short_kib: Count
    reclaim: bool = False


class Down(Message, frozen=True, kw_only=True):
    """What every message of the controller carries.

    Only a message to this very node renews the lease. ``seq`` grows strictly over all messages of a
    controller incarnation, on whatever topic. ``epoch`` counts the plans of a node and never shrinks; it is
    0 in a message to all nodes.
    """

    controller: ControllerIdentity
    node: NodeName | None  # None: for all nodes
    epoch: Epoch
    seq: Sequence
    sent_ns: InstantNs
    lease_ns: LeaseNs


class SlicePlan(Down, frozen=True, kw_only=True, tag="plan"):
    """The whole schedule of one node from ``first_slice`` on; it replaces what was known from there on.

    Slice ``n >= first_slice`` begins at ``first_start_ns + (n - first_slice) * quantum_ns``. Slices below
    ``horizon`` are final. ``cores`` are those of the jobs that are named here; version 3 has none. Without
    ``memory`` it counts for nothing.
    """

    first_slice: SliceNumber
    first_start_ns: InstantNs
    quantum_ns: QuantumNs
    horizon: SliceNumber
    bounds: Bounds
    tracks: Annotated[tuple[Track, ...], msgspec.Meta(max_length=MAX_TRACKS)]
    exempt: ExemptJobs = ExemptJobs()
    cores: AllocatedCores = msgspec.UNSET
    memory: MemoryTerms | msgspec.UnsetType = msgspec.UNSET


class PlanChange(Down, frozen=True, kw_only=True, tag="change"):
    """A difference against the plan of epoch ``base_epoch``, in force from ``first_slice`` on.

    ``tracks`` are new or replace the one of the same name, ``drop`` names tracks that end; the time base
    stays as it is. ``exempt`` replaces the former one at once; None leaves it. ``cores`` as in ``SlicePlan``.
    """

    base_epoch: Epoch
    first_slice: SliceNumber
    horizon: SliceNumber
    tracks: Annotated[tuple[Track, ...], msgspec.Meta(max_length=MAX_TRACKS)] = ()
    drop: Annotated[tuple[JobId, ...], msgspec.Meta(max_length=MAX_TRACKS)] = ()
    exempt: ExemptJobs | None = None
    cores: AllocatedCores = msgspec.UNSET


class Beat(Down, frozen=True, kw_only=True, tag="beat"):
    """Nothing changed: renews the lease of the plan of this ``epoch`` and moves its ``horizon``.

    An agent that does not hold the plan of this epoch has missed it: it thaws and sends ``Resend``.
    """

    horizon: SliceNumber


class ThawNow(Down, frozen=True, kw_only=True, tag="thaw"):
    """Thaw at once, without waiting for a slice: the named jobs, or all if ``jobs`` is None.

    With ``jobs`` None the plan is void as well (the controller leaves) until a new ``SlicePlan`` comes;
    otherwise the named jobs are latched as ``never_freeze``. To all nodes and without any job it only
    announces the controller: an agent that was not welcomed by it says hello. Grants no lease to all.
    """

    jobs: Jobs | None
    reason: Text


DownMessage = SlicePlan | PlanChange | Beat | ThawNow


class Hello(Message, frozen=True, kw_only=True, forbid_unknown_fields=False, tag="hello"):
    """Agent to controller, at start and after every change of controller: who I am, what I can do."""

    node: NodeName
    incarnation: Incarnation
    boot_id: Word
    pid: Count
    agent_version: Word
    freezer: Word  # "cgroup2", "cgroup1", "signals", "recording"
    yields: Word = "freeze"  # how jobs yield: one of the agent's ``--hold-by``, but auto
    dry_run: bool = False


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """Controller to agent: you are known; these are the times that hold here. A full plan follows."""

    controller: ControllerIdentity
    node: NodeName
    now_ns: InstantNs
    quantum_ns: QuantumNs
    lease_ns: LeaseNs
    lookahead: Annotated[int, msgspec.Meta(ge=1, le=64)]


class AccessRefused(Message, frozen=True, kw_only=True, tag="refused"):
    """Controller to agent: you are not let in, and why (unknown node, second agent of the same node)."""

    node: NodeName
    reason: Text


class Resend(Message, frozen=True, kw_only=True, forbid_unknown_fields=False, tag="resend"):
    """Agent to controller: I lack the plan of the epoch that is beaten; publish the whole plan again."""

    node: NodeName
    have_epoch: Epoch | None


class Ping(Message, frozen=True, kw_only=True, forbid_unknown_fields=False, tag="ping"):
    """Agent to controller: clock probe. ``agent_ns`` is on the agent's CLOCK_MONOTONIC."""

    node: NodeName
    agent_ns: InstantNs


class Pong(Message, frozen=True, kw_only=True, tag="pong"):
    """Controller to agent: answer to ``Ping``.

    Offset (controller minus agent) is ``((received_ns - agent_ns) + (sent_ns - now_agent_ns)) / 2``.
    """

    node: NodeName
    agent_ns: InstantNs
    received_ns: InstantNs
    sent_ns: InstantNs


class JobSample(msgspec.Struct, frozen=True, array_like=True):
    """What a job did on this node in a slice in which it was not frozen.

    Parameters
    ----------
    job
        Slurm's raw job id.
    cpu_us
        CPU time consumed by all of its processes.
    delay_us
        Run-queue delay: time that they were runnable and waited for a core.
    span_us
        Length of the observation; 0 if the slice was too short to observe.
    tasks
        Processes that were seen, all steps together.
    held_us
        How much of the observation the job was held and yielded.
    """

    job: JobId
    cpu_us: LengthUs
    delay_us: LengthUs
    span_us: LengthUs
    tasks: Count
    held_us: LengthUs = 0


class SliceReport(msgspec.Struct, frozen=True, array_like=True):
    """One slice as it was applied on this node.

    ``applied_ns`` is the instant at which the last write was done, on the controller's clock as the agent
    estimates it; ``skew_us`` how late the switch began; ``freeze_us`` from the instant to the last
    write. ``held`` are the jobs that are really frozen in it, ``yielding`` those that are held and yield.
    """

    number: SliceNumber
    epoch: Epoch
    applied_ns: InstantNs
    skew_us: SkewUs
    freeze_us: LengthUs
    held: Jobs
    samples: Annotated[tuple[JobSample, ...], msgspec.Meta(max_length=MAX_JOBS_PER_LIST)]
    yielding: Jobs = ()


class FoundState(msgspec.Struct, frozen=True, array_like=True):
    """A job whose freeze state is not the one that the agent left: another process suspends or resumes it."""

    job: JobId
    left: Word  # "frozen" or "thawed"
    found: Word


class Leak(msgspec.Struct, frozen=True, array_like=True):
    """CPU time that a held job consumed (a step born while it was held, a fork during a freeze)."""

    job: JobId
    cpu_us: LengthUs


class AgentFault(msgspec.Struct, frozen=True, array_like=True):
    """An error that the agent met, counted since its last report; ``job`` if it concerns one."""

    kind: Word
    count: Count
    text: Text
    job: JobId | None = None


class ReportedJobMemory(msgspec.Struct, frozen=True, array_like=True):
    """Memory of a job on this node: now, and the most so far."""

    job: JobId
    used_kib: Count
    peak_kib: Count


class ReportedMemory(msgspec.Struct, frozen=True, array_like=True):
    """Memory of this node, as ``gangd.core`` has it (``NodeMemory``)."""

    available_kib: Count
    stall: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    stalled_us: Count = 0
    jobs: Annotated[tuple[ReportedJobMemory, ...], msgspec.Meta(max_length=MAX_JOBS_PER_LIST)] = ()


class Report(Message, frozen=True, kw_only=True, forbid_unknown_fields=False, tag="report"):
    """Agent to controller, at least once a slice while jobs are shared, else once a second.

    ``alone`` is what jobs did that no slice names. ``follows`` is the controller that the agent obeys,
    ``seq`` grows by one with each report of this agent incarnation. ``born`` are jobs whose first process was
    found, or whose prolog rang, ``launched`` those whose tasks have begun to run their program, ``ended``
    those whose last process is gone; ``dying`` had SIGTERM or SIGKILL pending a while ago; the agent has
    thawed them and keeps naming them as long as it does not freeze them for it.
    """

    node: NodeName
    incarnation: Incarnation
    follows: Incarnation | None
    seq: Sequence
    offset_ns: OffsetNs
    rtt_us: LengthUs
    slices: Annotated[tuple[SliceReport, ...], msgspec.Meta(max_length=MAX_SLICES)] = ()
    born: Jobs = ()
    launched: Jobs = ()
    ended: Jobs = ()
    dying: Jobs = ()
    alone: Annotated[tuple[JobSample, ...], msgspec.Meta(max_length=MAX_JOBS_PER_LIST)] = ()
    found: Annotated[tuple[FoundState, ...], msgspec.Meta(max_length=MAX_JOBS_PER_LIST)] = ()
    leaks: Annotated[tuple[Leak, ...], msgspec.Meta(max_length=MAX_JOBS_PER_LIST)] = ()
    faults: Annotated[tuple[AgentFault, ...], msgspec.Meta(max_length=256)] = ()
    foreign_controllers: Count = 0  # messages of other controllers dropped since the last report
    memory: ReportedMemory | msgspec.UnsetType = msgspec.UNSET


class Farewell(Message, frozen=True, kw_only=True, forbid_unknown_fields=False, tag="farewell"):
    """Agent to controller: everything is thawed here and I leave."""

    node: NodeName
    incarnation: Incarnation
    reason: Text


UpMessage = Hello | Resend | Ping | Report | Farewell
ReplyMessage = Welcome | AccessRefused | Pong
