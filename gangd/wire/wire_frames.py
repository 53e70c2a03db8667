"""Between messages and ZeroMQ frames: topics, encoding, and decoding that trusts nothing.

A downward message is two frames, ``[topic, body]``; an upward one or a reply is one, ``[body]`` (the
ROUTER adds the connection). A body is msgpack of one tagged struct.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gangd.wire.messages import (
    MAX_FRAME_BYTES,
    NEWEST,
    OLDEST,
    VERSION,
    DownMessage,
    MalformedError,
    Message,
    PlanChange,
    ReplyMessage,
    SlicePlan,
    UpMessage,
    VersionError,
    WrongNodeError,
    printable,
)

CORES_SINCE = 4
"""First version whose plans have ``cores``, and ``memory``."""
ALL_NODES_TOPIC = b"*/"
"""Every agent subscribes to this topic and to its own."""

_encoder = msgspec.msgpack.Encoder()
_down = msgspec.msgpack.Decoder(DownMessage)
_up = msgspec.msgpack.Decoder(UpMessage)
_reply = msgspec.msgpack.Decoder(ReplyMessage)


class _Peek(msgspec.Struct):
    version: int


_peek = msgspec.msgpack.Decoder(_Peek)


def topic(node: str | None) -> bytes:
    """Subscription topic of a node (None: of all nodes); a slash, which no node name has, ends it.

    ZeroMQ subscriptions match prefixes: without the end mark ``node1`` would also receive ``node10``.
    """
    return ALL_NODES_TOPIC if node is None else node.encode("ascii") + b"/"


def encode(message: Message, version: int = VERSION) -> bytes:
    """Body of a message, as it is said in a version."""
    if message.version != version:
        message = msgspec.structs.replace(message, version=version)
        if version < CORES_SINCE and isinstance(message, SlicePlan | PlanChange):
            message = msgspec.structs.replace(message, cores=msgspec.UNSET)
            if isinstance(message, SlicePlan):
                message = msgspec.structs.replace(message, memory=msgspec.UNSET)
    return _encoder.encode(message)


def encode_down(message: DownMessage, version: int = VERSION) -> list[bytes]:
    """Frames ``[topic, body]`` of a message of the controller."""
    return [topic(message.node), encode(message, version)]


def decode_down(frames: Sequence[bytes], node: str) -> DownMessage:
    """Message for ``node`` from the frames of a SUB socket.

    Raises
    ------
    MalformedError, VersionError, WrongNodeError
        The frames are not a message of this protocol version for this node or for all nodes.
    """
    if len(frames) != 2:
        raise MalformedError(f"expected topic and body, got {len(frames)} frames")
    message: DownMessage = _decode(_down, frames[1], VERSION)
    if message.node not in (None, node) or frames[0] != topic(message.node):
        raise WrongNodeError(
            f"{node}: got a message for {message.node or 'all nodes'}, topic {frames[0][:64]!r}"
        )
    return message


def decode_up(body: bytes, sender: str | None) -> UpMessage:
    """Message of the agent whose key is that of node ``sender``, None for a key that all nodes share.

    Raises as ``decode_down``.
    """
    message: UpMessage = _decode(_up, body, NEWEST)
    if sender is not None and message.node != sender:
        raise WrongNodeError(f"the key of {sender} speaks for node {message.node}")
    return message


def decode_reply(body: bytes, node: str) -> ReplyMessage:
    """Answer of the controller to the agent of ``node``; raises as ``decode_down``."""
    message: ReplyMessage = _decode(_reply, body, VERSION)
    if message.node != node:
        raise WrongNodeError(f"{node}: got an answer for node {message.node}")
    return message


def _decode(decoder: msgspec.msgpack.Decoder[Any], body: bytes, newest: int) -> Any:
    if len(body) > MAX_FRAME_BYTES:
        raise MalformedError(f"body of {len(body)} bytes; at most {MAX_FRAME_BYTES} are allowed")
    try:
        message = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _reason(body, error, newest) from error
    if not OLDEST <= message.version <= newest:
        raise _far(message.version)
    return message


def _far(version: int) -> VersionError:
    return VersionError(f"protocol version {version}, this side speaks {VERSION}: upgrade the older one")


def _reason(body: bytes, error: Exception, newest: int) -> MalformedError | VersionError:
    """Tell a message of another protocol version from one that is plainly wrong."""
    why = printable(str(error)[:200])  # it may quote the message
    try:
        version = _peek.decode(body).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MalformedError(f"not a message: {why}")
    if not OLDEST <= version <= newest:
        return _far(version)
    return MalformedError(f"not a message: {why}")
