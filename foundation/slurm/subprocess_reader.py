"""Slurm's jobs read in a process of its own, so that the many that it has delay nothing in ours.

``ApartSlurm`` is our side: a ``SlurmClient``. ``reader_process`` is the other: it asks Slurm, parses, and
sends over a pipe what is not as it was. A process of its own also bears what a C library may do to it
(``foundation.slurm.pyslurm_library``).

Typed messages go over the pipes, each with its length before it. An answer is any number of parts and then
``AnswerComplete``, or ``AnswerFault``. A part is small, so that its decoder soon releases the interpreter
lock. The bounds hold on both sides: the other may be broken.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from foundation.errors import ClusterError, HostError
from foundation.slurm.command_slurm import CommandSlurm
from foundation.slurm.run_command import command_environment
from foundation.slurm.slurm_types import (
    AnswerTooLongError,
    JobSnapshot,
    SlurmJob,
    SlurmNode,
    SlurmRefusedError,
    SlurmUnreachableError,
    SnapshotDifference,
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


LONGEST_ANSWER_S = 90.0
"""The commands of a look may take 20 s and are tried three times."""

LIBRARY_AGAIN_S = 600.0
_PROCESS = "foundation.slurm.reader_process"


class ApartSlurm(CommandSlurm):
    """A live Slurm whose jobs and nodes are read by a process of its own.

    For one thread. The process is started by the first look, and anew after it has died; one that died while
    it read through Slurm's C library is followed by one that leaves it alone for ten minutes.

    Parameters
    ----------
    conf
        The cluster's ``slurm.conf``; None takes the environment's.
    alive_only
        Whether jobs that are over are left out.
    source
        ``any``: what is best; ``pyslurm`` or ``commands``: this alone.
    words
        The process's command; tests put their own here.

    Attributes
    ----------
    read_from
        Where the last answer was read from.
    """

    def __init__(
        self,
        conf: Path | None = None,
        *,
        alive_only: bool = False,
        source: str = "any",
        answer_s: float = LONGEST_ANSWER_S,
        words: Sequence[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(conf)
        self.read_from: str | None = None
        self._apart_environment = command_environment(os.environ, conf)
        self._words = [sys.executable, "-P", "-m", _PROCESS] if words is None else [*words]
        self._words += [] if conf is None else ["--conf", str(conf)]
        self._words += ["--alive"] if alive_only else []
        self._wanted = source
        self._answer_s = answer_s
        self._clock = clock
        self._no_library_until_s = float("-inf")
        self._with_library = False
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._decoder = Decoder(Answer)
        self._jobs: dict[int, SlurmJob] = {}
        self._number = 0
        self._changed: dict[int, SlurmJob] = {}
        self._gone: dict[int, None] = {}
        """What has come since jobs were asked for last: who asks for nodes brings news of jobs along."""
        self._nodes: list[SlurmNode] = []

    def jobs(self) -> JobSnapshot:
        """Return every job, or those that are not over; one that is as it was is the same object."""
        snapshot = self._look(Look())
        since, self._number = self._number, self._number + 1
        changed, gone = tuple(self._changed.values()), tuple(self._gone)
        self._changed, self._gone = {}, {}
        return replace(snapshot, difference=SnapshotDifference(self._number, since, changed, gone))

    def nodes(self) -> Sequence[SlurmNode]:
        """Return every node."""
        self._look(Look(nodes=True))
        return self._nodes

    def close(self) -> None:
        """End the process, if there is one, and start none any more."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _look(self, look: Look) -> JobSnapshot:
        process = self._process or self._begin()
        try:
            return self._answer_of(process, look)
        except (BrokenPipe, OSError) as error:
            self._end()
            code = process.returncode
            if self._with_library:
                self._no_library_until_s = self._clock() + LIBRARY_AGAIN_S
            raise SlurmUnreachableError(
                f"the process that reads Slurm's jobs failed: {error} (exit code {code}); it is started again"
            ) from error

    def _begin(self) -> subprocess.Popen[bytes]:
        barred = self._clock() < self._no_library_until_s and self._wanted == "any"
        if self._closed:
            raise SlurmUnreachableError("Slurm's jobs are not read any more")
        source = "commands" if barred else self._wanted
        self._with_library = source != "commands"
        self._decoder = Decoder(Answer)
        self._jobs, self._nodes = {}, []
        self._changed, self._gone = {}, {}
        self._number += 1  # the next answer is no difference to the last one
        try:
            self._process = subprocess.Popen(
                [*self._words, "--source", source],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._apart_environment,
                bufsize=0,
            )
        except OSError as error:
            raise HostError(
                f"the process that reads Slurm's jobs cannot be started: {error.strerror}"
            ) from error
        return self._process

    def _answer_of(self, process: subprocess.Popen[bytes], look: Look) -> JobSnapshot:
        assert process.stdin is not None
        assert process.stdout is not None
        os.write(process.stdin.fileno(), encode(look))
        deadline_s = self._clock() + self._answer_s
        jobs, unread, nodes = dict(self._jobs), list[UnreadableJob](), list[SlurmNode]()
        changed, gone = dict[int, SlurmJob](), list[int]()
        fault: AnswerFault | None = None
        done: AnswerComplete | None = None
        while done is None and fault is None:
            match self._next(process.stdout.fileno(), deadline_s):
                case Jobs(jobs=part):
                    changed.update((job.job_id, job) for job in part)
                    jobs.update((job.job_id, job) for job in part)
                case Gone(ids=ids):
                    gone += ids
                    for key in ids:
                        jobs.pop(key, None)
                case UnreadJobs(jobs=some):
                    unread += some
                case NodesFrame(nodes=more):
                    nodes += more
                case AnswerFault() as answer:
                    fault = answer
                case AnswerComplete() as complete:
                    done = complete
                case other:
                    raise BrokenPipe(f"it sent {type(other).__name__}")
        if fault is not None:
            raise fault.error()
        assert done is not None
        if done.jobs != len(jobs):
            raise BrokenPipe(f"it sent {len(jobs)} jobs, and counts {done.jobs}")
        self._jobs, self.read_from = jobs, done.source
        if look.nodes:
            self._nodes = nodes
        self._note(changed, gone)
        return JobSnapshot(tuple(jobs.values()), tuple(unread))

    def _note(self, changed: Mapping[int, SlurmJob], gone: Iterable[int]) -> None:
        for key in gone:
            self._changed.pop(key, None)
            self._gone[key] = None
        for key, job in changed.items():
            self._gone.pop(key, None)
            self._changed[key] = job

    def _next(self, fd: int, deadline_s: float) -> object:
        while (message := self._decoder.take()) is None:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            left_s = deadline_s - self._clock()
            if left_s <= 0 or not poller.poll(left_s * 1000):
                raise BrokenPipe(f"it did not answer within {self._answer_s:g} s")
            self._decoder.feed(fd)
        return message
