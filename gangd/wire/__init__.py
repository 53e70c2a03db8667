"""The messages between the controller and its agents: typed, bounded, versioned, and never trusted.

Down (PUB/SUB, frames ``[topic, body]``), see ``gangd.wire.messages``
    ``SlicePlan`` the schedule of one node; ``PlanChange`` a difference; ``Beat`` nothing changed;
    ``ThawNow`` at once. An agent subscribes to ``topic(node)`` and ``ALL_NODES_TOPIC``.
Up and replies (DEALER/ROUTER, frames ``[body]``), see ``gangd.wire.messages``
    ``Hello`` -> ``Welcome`` or ``AccessRefused``, ``Ping`` -> ``Pong``, ``Report``, ``Resend``, ``Farewell``.

``decode_down``, ``decode_up`` and ``decode_reply`` raise a ``WireError`` (a ``PeerError``) for anything
that is not a valid message; the caller counts it under ``error.kind`` and drops the message.
"""

from __future__ import annotations

from gangd.wire.messages import (
    VERSION,
    AccessRefused,
    AgentFault,
    Beat,
    Bounds,
    ControllerIdentity,
    DownMessage,
    ExemptJobs,
    Farewell,
    ForeignControllerError,
    FoundState,
    Hello,
    JobCores,
    JobHold,
    JobSample,
    Leak,
    MalformedError,
    MemoryTerms,
    Message,
    MissedPlanError,
    Ping,
    PlanChange,
    Pong,
    ReplayedError,
    ReplyMessage,
    Report,
    ReportedJobMemory,
    ReportedMemory,
    Resend,
    SlicePlan,
    SliceReport,
    SliceSets,
    ThawNow,
    Track,
    UpMessage,
    VersionError,
    Welcome,
    WireError,
    WrongNodeError,
)
from gangd.wire.slice_schedule import SliceSchedule
from gangd.wire.wire_frames import (
    ALL_NODES_TOPIC,
    decode_down,
    decode_reply,
    decode_up,
    encode,
    encode_down,
    topic,
)
