"""The messages on the control socket: one request, one answer, both JSON of a typed struct with bounds."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from foundation.errors import UsageError

MOST_TARGETS = 4_096
MOST_BYTES = 192 << 10
"""Longest message; a Unix socket of Linux takes a little more in one piece."""
MOST_SHOWN = 200

Verb = Literal["pause", "drain", "resume", "weight"]
Kind = Literal["all", "node", "partition", "job"]
What = Literal["pause", "drain", "weight", "own weight"]
"""What an order in force says; ``own weight`` is one by which a job's owner asks for less."""
Weight = Annotated[float, msgspec.Meta(ge=1 / 1024, le=1024)]
_LONGEST_NAME = 255
_NAME = r"[A-Za-z0-9_.+$@-]*"
Name = Annotated[str, msgspec.Meta(max_length=_LONGEST_NAME, pattern=rf"\A{_NAME}\Z")]
JobName = r"[0-9]{1,10}(_[0-9]{1,10})?"


class OrderTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, order=True):
    """What an order is about.

    ``name`` is a node's or partition's name, a job's raw id or ``ARRAY_TASK``; empty for ``all``.
    """

    kind: Kind
    name: Name = ""

    def __str__(self) -> str:
        return "everything" if self.kind == "all" else f"{self.kind} {self.name}"


class OrderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a user orders. ``weight`` belongs to the verb ``weight``; None takes the order back."""

    version: Literal[1] = 1
    verb: Verb
    targets: Annotated[tuple[OrderTarget, ...], msgspec.Meta(min_length=1, max_length=MOST_TARGETS)]
    weight: Weight | None = None


class ActiveOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An order in force.

    Parameters
    ----------
    what
        ``own weight`` is one by which a job's owner asks for less.
    weight
        Of a weight, else None.
    since_s
        Wall clock: jobs that start later are kept out by a drain.
    uid, by
        Who gave it.
    """

    what: What
    target: OrderTarget
    weight: Weight | None = None
    since_s: float
    uid: int
    by: Annotated[str, msgspec.Meta(max_length=64)]


class OrderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request: ``done`` or not, in one line; the newest orders on its targets."""

    done: bool
    text: str
    orders: tuple[ActiveOrder, ...] = ()


_request = msgspec.json.Decoder(OrderRequest)
_answer = msgspec.json.Decoder(OrderAnswer)


def is_name(text: str) -> bool:
    """Return whether a node, a partition or a job can be called so."""
    return 0 < len(text) <= _LONGEST_NAME and re.fullmatch(_NAME, text) is not None


def read_request(body: bytes) -> OrderRequest:
    """Decode a request.

    Raises
    ------
    UsageError
        It is none.
    """
    if len(body) > MOST_BYTES:
        raise UsageError(f"a request is {MOST_BYTES} bytes long at most")
    try:
        return _request.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"no request of this version: {error}") from error


def read_answer(body: bytes) -> OrderAnswer:
    """Decode an answer; raises as ``read_request``."""
    try:
        return _answer.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the answer of gangd is none of this version: {error}") from error
