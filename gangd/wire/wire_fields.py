"""The bounded types of message fields: every number has a range, every list and text a greatest length.

Instants and lengths of time are integer nanoseconds (``_ns``) or microseconds (``_us``). Instants are on
the *controller's* ``CLOCK_MONOTONIC`` unless a field says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

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
