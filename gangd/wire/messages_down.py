"""Messages from the controller to its agents, on PUB/SUB.

Every message names the controller, its epoch and a sequence number, when it was sent, and the lease: for
``lease_ns`` after its arrival (measured on the agent's own clock) the agent may hold jobs. Slices are
numbered from the controller's start. A plan is a set of *tracks*, one for each group of jobs that share
cores; each track repeats its own list of slices, so that a steady schedule is sent once. A revision has a
higher epoch and begins at ``first_slice``, which lies beyond every earlier message's ``horizon``: a slice
below the horizon never changes. A job that no track holds runs.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gangd.wire import wire_fields as f
from gangd.wire.versions import VERSION


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    """Root of every message: ``version`` is the protocol's, see ``versions``."""

    version: Annotated[int, msgspec.Meta(ge=1, le=255)] = VERSION


class ControllerIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Which controller speaks: a random 128-bit ``incarnation``, and its wall-clock start (ns).

    Of two that speak, the one with the later ``(started_ns, incarnation)`` is followed.
    """

    incarnation: f.Incarnation
    started_ns: f.InstantNs


class SliceSets(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """One slice of a track on this node: the jobs that own it and the jobs that are held in it.

    A job that is in ``run`` of every slice of its track is there to be sampled.
    """

    run: f.Jobs
    held: f.Jobs


class JobCores(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """How many cores of this node Slurm has allocated to a job."""

    job: f.JobId
    cores: f.Cores


AllocatedCores = (
    Annotated[tuple[JobCores, ...], msgspec.Meta(max_length=4 * f.MAX_JOBS_PER_LIST)] | msgspec.UnsetType
)


class JobHold(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """How a job of a track is held."""

    job: f.JobId
    kind: f.HoldKind


class Track(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """The slices of one group of jobs that share cores; tracks of a plan are independent of each other.

    Slice ``n >= first_slice`` of the track is ``slices[(n - first_slice) % len(slices)]`` if ``repeat``;
    otherwise ``slices[n - first_slice]``, and past the end every job of the track runs. A job that ``holds``
    does not name is frozen when it is held.
    """

    track: f.JobId  # least job id of the group: a name, unique within a plan
    first_slice: f.SliceNumber
    repeat: bool
    slices: Annotated[tuple[SliceSets, ...], msgspec.Meta(min_length=1, max_length=f.MAX_SLICES)]
    holds: Annotated[tuple[JobHold, ...], msgspec.Meta(max_length=f.MAX_JOBS_PER_LIST)] = ()


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

    never_freeze: f.Jobs = ()
    opt_out: f.Jobs = ()
    suspended: f.Jobs = ()


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

    longest_ns: f.LongestNs
    grace_ns: f.GraceNs
    newcomers_yield: bool = False


class Down(Message, frozen=True, kw_only=True):
    """What every message of the controller carries.

    Only a message to this very node renews the lease. ``seq`` grows strictly over all messages of a
    controller incarnation, on whatever topic. ``epoch`` counts the plans of a node and never shrinks; it is
    0 in a message to all nodes.
    """

    controller: ControllerIdentity
    node: f.NodeName | None  # None: for all nodes
    epoch: f.Epoch
    seq: f.Sequence
    sent_ns: f.InstantNs
    lease_ns: f.LeaseNs


class SlicePlan(Down, frozen=True, kw_only=True, tag="plan"):
    """The whole schedule of one node from ``first_slice`` on; it replaces what was known from there on.

    Slice ``n >= first_slice`` begins at ``first_start_ns + (n - first_slice) * quantum_ns``. Slices below
    ``horizon`` are final. ``cores`` are those of the jobs that are named here; version 3 has none.
    """

    first_slice: f.SliceNumber
    first_start_ns: f.InstantNs
    quantum_ns: f.QuantumNs
    horizon: f.SliceNumber
    bounds: Bounds
    tracks: Annotated[tuple[Track, ...], msgspec.Meta(max_length=f.MAX_TRACKS)]
    exempt: ExemptJobs = ExemptJobs()
    cores: AllocatedCores = msgspec.UNSET


class PlanChange(Down, frozen=True, kw_only=True, tag="change"):
    """A difference against the plan of epoch ``base_epoch``, in force from ``first_slice`` on.

    ``tracks`` are new or replace the one of the same name, ``drop`` names tracks that end; the time base
    stays as it is. ``exempt`` replaces the former one at once; None leaves it. ``cores`` as in ``SlicePlan``.
    """

    base_epoch: f.Epoch
    first_slice: f.SliceNumber
    horizon: f.SliceNumber
    tracks: Annotated[tuple[Track, ...], msgspec.Meta(max_length=f.MAX_TRACKS)] = ()
    drop: Annotated[tuple[f.JobId, ...], msgspec.Meta(max_length=f.MAX_TRACKS)] = ()
    exempt: ExemptJobs | None = None
    cores: AllocatedCores = msgspec.UNSET


class Beat(Down, frozen=True, kw_only=True, tag="beat"):
    """Nothing changed: renews the lease of the plan of this ``epoch`` and moves its ``horizon``.

    An agent that does not hold the plan of this epoch has missed it: it thaws and sends ``Resend``.
    """

    horizon: f.SliceNumber


class ThawNow(Down, frozen=True, kw_only=True, tag="thaw"):
    """Thaw at once, without waiting for a slice: the named jobs, or all if ``jobs`` is None.

    With ``jobs`` None the plan is void as well (the controller leaves) until a new ``SlicePlan`` comes;
    otherwise the named jobs are latched as ``never_freeze``. To all nodes and without any job it only
    announces the controller: an agent that was not welcomed by it says hello. Grants no lease to all.
    """

    jobs: f.Jobs | None
    reason: f.Text


DownMessage = SlicePlan | PlanChange | Beat | ThawNow
