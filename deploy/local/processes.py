"""Processes as the kernel tells of them, and ending them without ever meeting another one.

A pid may be given to somebody else at any time. So a process is pinned by a pidfd first and looked at then;
if it still lives after the look, what was seen is its own. Signals go through the pidfd.
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

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Facts:
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


def read_facts(pid: int, proc: Path = PROC) -> Facts | None:
    """Return what is known of a process; None if it is gone or a zombie."""
    folder = proc / str(pid)
    try:
        stat = (folder / "stat").read_bytes()
        words = (folder / "cmdline").read_bytes()
        status = (folder / "status").read_bytes()
        cgroups = (folder / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    environment = b""
    with suppress(OSError):
        environment = (folder / "environ").read_bytes()
    begin, end = stat.find(b"(") + 1, stat.rfind(b")")
    fields = stat[end + 1 :].split()
    users = next((line.split()[1:4] for line in status.splitlines() if line.startswith(b"Uid:")), [])
    if fields[0] in (b"Z", b"X"):
        return None
    return Facts(
        pid=pid,
        parent=int(fields[1]),
        start_ticks=int(fields[19]),
        user=int(users[0]) if len(set(users)) == 1 else None,
        name=stat[begin:end].decode(errors="replace"),
        words=_texts(words),
        environment=frozenset(_texts(environment)),
        cgroups=tuple(line.split(":", 2)[-1] for line in cgroups.splitlines()),
    )


def all_facts(proc: Path = PROC) -> Iterator[Facts]:
    """Yield what is known of every process."""
    for entry in proc.iterdir():
        if entry.name.isdigit() and (facts := read_facts(int(entry.name), proc)) is not None:
            yield facts


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
    facts = read_facts(pid)
    if facts is not None and facts.start_ticks == start_ticks and pinned.is_alive():
        return pinned
    os.close(pinned.pidfd)
    return None


def end(processes: Iterable[Pinned], within_s: float, *, politely: bool) -> list[int]:
    """End processes, stopped ones too, and let go of them; returns the pids of those that live on.

    Parameters
    ----------
    processes
        Each is sent SIGTERM first (``politely``), and SIGKILL if it lives on.
    within_s
        How long to wait after each signal, seconds.
    politely
        Else SIGKILL at once.
    """
    left = list(processes)
    every = list(left)
    try:
        for number in (signal.SIGTERM, signal.SIGKILL) if politely else (signal.SIGKILL,):
            for process in left:
                process.send(number)
                process.send(signal.SIGCONT)
            left = _wait(left, within_s)
        return [process.pid for process in left]
    finally:
        for process in every:
            os.close(process.pidfd)


def _wait(processes: list[Pinned], within_s: float) -> list[Pinned]:
    """Wait for processes to end; returns those that did not."""
    deadline_s, left = time.monotonic() + within_s, processes
    while left and (rest_s := deadline_s - time.monotonic()) > 0:
        poller = select.poll()
        for process in left:
            poller.register(process.pidfd, select.POLLIN)
        poller.poll(rest_s * 1000)
        left = [process for process in left if process.is_alive()]
    for process in processes:
        with suppress(OSError):  # one of ours is reaped
            os.waitid(os.P_PIDFD, process.pidfd, os.WEXITED | os.WNOHANG)
    return left


def _texts(raw: bytes) -> tuple[str, ...]:
    """Split what ends each piece with a zero byte; a title written over it ends with many."""
    return tuple(piece.decode(errors="surrogateescape") for piece in raw.rstrip(b"\0").split(b"\0"))
