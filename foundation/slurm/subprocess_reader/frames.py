"""What goes over the pipes to and from a reader's process: typed messages, each with its length before it.

An answer is any number of parts and then ``AnswerComplete``, or ``AnswerFault``. A part is small, so that
its decoder soon releases the interpreter lock. The bounds hold on both sides: the
other may be broken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from foundation.errors import ClusterError
from foundation.slurm.slurm_types import (
    AnswerTooLongError,
    SlurmJob,
    SlurmNode,
    SlurmRefusedError,
    SlurmUnreachableError,
    UnknownFormatError,
    UnreadableJob,
)

PART_BYTES = 64 << 10
MOST_BYTES = 8 << 20
"""The longest message: one job, with all that its user and operators wrote of it."""

_LENGTH = 4
_KINDS: dict[str, type[ClusterError]] = {
    "unreachable": SlurmUnreachableError,
    "refused": SlurmRefusedError,
    "long": AnswerTooLongError,
    "form": UnknownFormatError,
    "other": ClusterError,
}
T = TypeVar("T")


class Look(msgspec.Struct, frozen=True, tag=True):
    """Ask for the jobs, and for the nodes first if they are wanted."""

    nodes: bool = False


class Jobs(msgspec.Struct, frozen=True, tag=True):
    """Jobs that are new or not as they were."""

    jobs: list[SlurmJob]


class Gone(msgspec.Struct, frozen=True, tag=True):
    """Jobs that were there, and are not."""

    ids: list[int]


class UnreadJobs(msgspec.Struct, frozen=True, tag=True):
    """Jobs that cannot be read, some of them."""

    jobs: list[UnreadableJob]


class NodesFrame(msgspec.Struct, frozen=True, tag=True):
    """Nodes, some of them."""

    nodes: list[SlurmNode]


class AnswerComplete(msgspec.Struct, frozen=True, tag=True):
    """The answer is whole: so many jobs can be read now, and they were read from there."""

    jobs: int
    source: str


class AnswerFault(msgspec.Struct, frozen=True, tag=True):
    """There is no answer, and nothing that was sent of it counts."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: ClusterError) -> AnswerFault:
        """Return what tells of an error."""
        kind = next(name for name, known in _KINDS.items() if isinstance(error, known))
        return cls(kind, str(error))

    def error(self) -> ClusterError:
        """Return the error that it tells of."""
        return _KINDS.get(self.kind, ClusterError)(self.text)


Answer = Jobs | Gone | UnreadJobs | NodesFrame | AnswerComplete | AnswerFault

_encoder = msgspec.msgpack.Encoder()


class BrokenPipe(Exception):  # noqa: N818 - it is the pipe that is broken
    """The other side is gone, or sent what is no message; the reason can be printed."""


def encode(message: Look | Answer) -> bytes:
    """Return a message with its length before it."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


def parts(
    items: Iterable[T], make: Callable[[list[T]], Answer], too_long: Callable[[T], None]
) -> Iterator[bytes]:
    """Yield messages with a part of the items each, ready to be sent.

    Parameters
    ----------
    too_long
        Called with an item that no message can hold; it is left out.
    """
    part: list[T] = []
    size = 0
    for item in items:
        length = len(_encoder.encode(item))
        if length > MOST_BYTES // 2:
            too_long(item)
            continue
        if part and size + length > PART_BYTES:
            yield encode(make(part))
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield encode(make(part))


class Decoder:
    """Takes messages out of a pipe.

    Parameters
    ----------
    kind
        What may come.
    """

    def __init__(self, kind: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[Look | Answer] = msgspec.msgpack.Decoder(kind)
        self._kept = bytearray()

    def feed(self, fd: int) -> None:
        """Read what is there, which must be something; raises BrokenPipe at the end of the pipe."""
        try:
            read = os.read(fd, PART_BYTES)
        except OSError as error:
            raise BrokenPipe(f"its pipe cannot be read: {error.strerror}") from error
        if not read:
            raise BrokenPipe("it ended")
        self._kept += read

    def take(self) -> Look | Answer | None:
        """Return the next whole message; raises BrokenPipe where it is none."""
        kept = self._kept
        if len(kept) < _LENGTH:
            return None
        length = int.from_bytes(kept[:_LENGTH], "big")
        if length > MOST_BYTES:
            raise BrokenPipe(f"it sent a message of {length} bytes")
        if len(kept) < _LENGTH + length:
            return None
        body = bytes(kept[_LENGTH : _LENGTH + length])
        del kept[: _LENGTH + length]
        try:
            return self._decoder.decode(body)
        except msgspec.DecodeError as error:
            raise BrokenPipe(f"it sent what is no message: {error}") from error
