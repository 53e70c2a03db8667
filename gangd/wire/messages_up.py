"""Messages on the DEALER (agent) / ROUTER (controller) pair: joining, clock probes, reports.

The agent's key says which node it is; an answer goes back over the connection on which the question came.
Directions are given with each message.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gangd.wire import wire_fields as f
from gangd.wire.messages_down import ControllerIdentity, Message


class Hello(Message, frozen=True, kw_only=True, forbid_unknown_fields=False, tag="hello"):
    """Agent to controller, at start and after every change of controller: who I am, what I can do."""

    node: f.NodeName
    incarnation: f.Incarnation
    boot_id: f.Word
    pid: f.Count
    agent_version: f.Word
    freezer: f.Word  # "cgroup2", "cgroup1", "signals", "recording"
    yields: f.Word = "freeze"  # how jobs yield: "cgroup2", "cgroup1", "cgroup1-slurm", "sched-idle"; or not
    dry_run: bool = False


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """Controller to agent: you are known; these are the times that hold here. A full plan follows."""

    controller: ControllerIdentity
    node: f.NodeName
    now_ns: f.InstantNs
    quantum_ns: f.QuantumNs
    lease_ns: f.LeaseNs
    lookahead: Annotated[int, msgspec.Meta(ge=1, le=64)]


class AccessRefused(Message, frozen=True, kw_only=True, tag="refused"):
    """Controller to agent: you are not let in, and why (unknown node, second agent of the same node)."""

    node: f.NodeName
    reason: f.Text


class Resend(Message, frozen=True, kw_only=True, forbid_unknown_fields=False, tag="resend"):
    """Agent to controller: I lack the plan of the epoch that is beaten; publish the whole plan again."""

    node: f.NodeName
    have_epoch: f.Epoch | None


class Ping(Message, frozen=True, kw_only=True, forbid_unknown_fields=False, tag="ping"):
    """Agent to controller: clock probe. ``agent_ns`` is on the agent's CLOCK_MONOTONIC."""

    node: f.NodeName
    agent_ns: f.InstantNs


class Pong(Message, frozen=True, kw_only=True, tag="pong"):
    """Controller to agent: answer to ``Ping``.

    Offset (controller minus agent) is ``((received_ns - agent_ns) + (sent_ns - now_agent_ns)) / 2``.
    """

    node: f.NodeName
    agent_ns: f.InstantNs
    received_ns: f.InstantNs
    sent_ns: f.InstantNs


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

    job: f.JobId
    cpu_us: f.LengthUs
    delay_us: f.LengthUs
    span_us: f.LengthUs
    tasks: f.Count
    held_us: f.LengthUs = 0


class SliceReport(msgspec.Struct, frozen=True, array_like=True):
    """One slice as it was applied on this node.

    ``applied_ns`` is the instant at which the last write was done, on the controller's clock as the agent
    estimates it; ``skew_us`` how late the switch began; ``freeze_us`` from the instant to the last
    write. ``held`` are the jobs that are really frozen in it, ``yielding`` those that are held and yield.
    """

    number: f.SliceNumber
    epoch: f.Epoch
    applied_ns: f.InstantNs
    skew_us: f.SkewUs
    freeze_us: f.LengthUs
    held: f.Jobs
    samples: Annotated[tuple[JobSample, ...], msgspec.Meta(max_length=f.MAX_JOBS_PER_LIST)]
    yielding: f.Jobs = ()


class FoundState(msgspec.Struct, frozen=True, array_like=True):
    """A job whose freeze state is not the one that the agent left: another process suspends or resumes it."""

    job: f.JobId
    left: f.Word  # "frozen" or "thawed"
    found: f.Word


class Leak(msgspec.Struct, frozen=True, array_like=True):
    """CPU time that a held job consumed (a step born while it was held, a fork during a freeze)."""

    job: f.JobId
    cpu_us: f.LengthUs


class AgentFault(msgspec.Struct, frozen=True, array_like=True):
    """An error that the agent met, counted since its last report; ``job`` if it concerns one."""

    kind: f.Word
    count: f.Count
    text: f.Text
    job: f.JobId | None = None


class Report(Message, frozen=True, kw_only=True, forbid_unknown_fields=False, tag="report"):
    """Agent to controller, at least once a slice while jobs are shared, else once a second.

    ``alone`` is what jobs did that no slice names. ``follows`` is the controller that the agent obeys,
    ``seq`` grows by one with each report of this agent incarnation. ``born`` are jobs whose first process was
    found, or whose prolog rang, ``launched`` those whose tasks have begun to run their program, ``ended``
    those whose last process is gone; ``dying`` had SIGTERM or SIGKILL pending a while ago; the agent has
    thawed them and keeps naming them as long as it does not freeze them for it.
    """

    node: f.NodeName
    incarnation: f.Incarnation
    follows: f.Incarnation | None
    seq: f.Sequence
    offset_ns: f.OffsetNs
    rtt_us: f.LengthUs
    slices: Annotated[tuple[SliceReport, ...], msgspec.Meta(max_length=f.MAX_SLICES)] = ()
    born: f.Jobs = ()
    launched: f.Jobs = ()
    ended: f.Jobs = ()
    dying: f.Jobs = ()
    alone: Annotated[tuple[JobSample, ...], msgspec.Meta(max_length=f.MAX_JOBS_PER_LIST)] = ()
    found: Annotated[tuple[FoundState, ...], msgspec.Meta(max_length=f.MAX_JOBS_PER_LIST)] = ()
    leaks: Annotated[tuple[Leak, ...], msgspec.Meta(max_length=f.MAX_JOBS_PER_LIST)] = ()
    faults: Annotated[tuple[AgentFault, ...], msgspec.Meta(max_length=256)] = ()
    foreign_controllers: f.Count = 0  # messages of other controllers dropped since the last report


class Farewell(Message, frozen=True, kw_only=True, forbid_unknown_fields=False, tag="farewell"):
    """Agent to controller: everything is thawed here and I leave."""

    node: f.NodeName
    incarnation: f.Incarnation
    reason: f.Text


UpMessage = Hello | Resend | Ping | Report | Farewell
ReplyMessage = Welcome | AccessRefused | Pong
