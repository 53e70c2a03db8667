"""Processes as the kernel tells of them, and ending them without ever meeting another one.

A pid may be reused at any time. So a process is pinned by a pidfd first and looked at then;
if it still runs after the look, what was seen is its own. Signals go through the pidfd.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from foundation.process_stat import PARENT, START_TICKS, STATE, split_stat

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What the kernel says of a living process.

    Attributes
    ----------
    pid, parent
        Its number and its parent's.
    start_ticks
        When it began, in clock ticks since the host did: with the pid, its identity.
    user
        User id, if it has but one (real, effective and saved alike); None for a program of mixed rights.
    name
        Of the program, as the kernel has it (15 letters).
    words
        Its command line.
    environment
        As it was at its start; empty where it cannot be read.
    cgroups
        Its path in each hierarchy.
    """

    pid: int
    parent: int
    start_ticks: int
    user: int | None
    name: str
    words: tuple[str, ...]
    environment: frozenset[str]
    cgroups: tuple[str, ...]

    def opens_below(self, folder: Path, proc: Path = PROC) -> bool:
        """Whether it has a file open below a folder, removed or not."""
        with suppress(OSError):
            for entry in (proc / str(self.pid) / "fd").iterdir():
                with suppress(OSError):
                    if entry.readlink().is_relative_to(folder):
                        return True
        return False


def read_facts(pid: int, proc: Path = PROC) -> ProcessFacts | None:
    """Return what is known of a process; None if it is gone or a zombie."""
    try:
        stat, words, status, cgroups = (
            _read(f"{proc}/{pid}/{name}") for name in ("stat", "cmdline", "status", "cgroup")
        )
    except OSError:
        return None
    environment = b""
    with suppress(OSError):
        environment = _read(f"{proc}/{pid}/environ")
    name, fields = split_stat(stat)
    users = next((line.split()[1:4] for line in status.splitlines() if line.startswith(b"Uid:")), [])
    if fields[STATE] in (b"Z", b"X"):
        return None
    return ProcessFacts(
        pid=pid,
        parent=int(fields[PARENT]),
        start_ticks=int(fields[START_TICKS]),
        user=int(users[0]) if len(set(users)) == 1 else None,
        name=name.decode(errors="replace"),
        words=_texts(words),
        environment=frozenset(_texts(environment)),
        cgroups=tuple(line.split(":", 2)[-1] for line in cgroups.decode(errors="replace").splitlines()),
    )


def all_facts(proc: Path = PROC, variable: str = "") -> Iterator[ProcessFacts]:
    """Yield what is known of every process, or of those with a variable, ``NAME=value``, in the environment.

    One file is read of each process that has not the variable.
    """
    for pid in (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()):
        if variable and not _has(f"{proc}/{pid}/environ", variable):
            continue
        if (facts := read_facts(pid, proc)) is not None:
            yield facts


def _has(file: str, variable: str) -> bool:
    with suppress(OSError):
        return variable.encode() in _read(file).split(b"\0")
    return False


def _read(file: str) -> bytes:
    """Read a file of the kernel's; pathlib takes twice as long, and there are five for each process."""
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = piece = os.read(fd, 1 << 16)
        while piece:
            piece = os.read(fd, 1 << 16)
            content += piece
        return content
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Pinned:
    """A process that is held by a pidfd, which ``end`` or the caller closes."""

    pid: int
    pidfd: int

    def is_alive(self) -> bool:
        """Whether it has not ended; a zombie has."""
        poller = select.poll()  # select() takes no descriptor above 1,023
        poller.register(self.pidfd, select.POLLIN)
        return not poller.poll(0)

    def hurry(self) -> None:
        """Let its threads run before all others where the system permits it: an end takes CPU time, too."""
        with suppress(OSError):
            for thread in (PROC / str(self.pid) / "task").iterdir():
                os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))

    def send(self, number: signal.Signals) -> None:
        """Send a signal, to this process or to none."""
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self.pidfd, number)


def pin(pid: int, start_ticks: int) -> Pinned | None:
    """Pin the process that has this pid and began then; None if it is gone."""
    try:
        pinned = Pinned(pid, os.pidfd_open(pid))
    except OSError:
        return None
    with suppress(OSError):
        _, fields = split_stat(_read(f"{PROC}/{pid}/stat"))
        if int(fields[START_TICKS]) == start_ticks and pinned.is_alive():
            return pinned
    os.close(pinned.pidfd)
    return None


def end(processes: Iterable[Pinned], within_s: float) -> list[int]:
    """Kill processes, stopped ones too, and let go of them; returns the pids of those that still live.

    ``within_s`` is how long to wait for their ends, seconds.
    """
    every = list(processes)
    try:
        for process in every:
            process.hurry()
            process.send(signal.SIGKILL)
        return [process.pid for process in _wait(every, within_s)]
    finally:
        for process in every:
            os.close(process.pidfd)


def _wait(processes: list[Pinned], within_s: float) -> list[Pinned]:
    """Wait for processes to end; returns those that did not."""
    deadline_s, left = time.monotonic() + within_s, {process.pidfd: process for process in processes}
    poller = select.poll()
    for pidfd in left:
        poller.register(pidfd, select.POLLIN)
    while left and (rest_s := deadline_s - time.monotonic()) > 0:
        for pidfd, _ in poller.poll(rest_s * 1000):
            poller.unregister(pidfd)
            del left[pidfd]
    for process in processes:
        with suppress(OSError):  # one of ours is reaped
            os.waitid(os.P_PIDFD, process.pidfd, os.WEXITED | os.WNOHANG)
    return list(left.values())


def _texts(raw: bytes) -> tuple[str, ...]:
    """Split what ends each piece with a zero byte; a title written over it ends with many."""
    return tuple(piece.decode(errors="surrogateescape") for piece in raw.rstrip(b"\0").split(b"\0"))
