"""Starting, recognising and ending the daemons of an embedded cluster.

A daemon is started in the foreground in a session of its own, so that its pid is known at once. It
is recognised later by pid *and* start time, in ticks since the host's start, so that neither a pid that the
kernel has given to somebody else nor a clock that was set leads astray.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from deploy.local.processes import end, pin, read_facts


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """A process that we started: its role (``munged``, ``slurmctld``, ``slurmd NODE``), pid, start."""

    role: str
    pid: int
    start_ticks: int


def start_daemon(role: str, words: Sequence[str], log: Path, environment: Mapping[str, str]) -> Daemon:
    """Start a program detached from this terminal; what it prints is appended to ``log``."""
    pid = os.posix_spawn(
        words[0],
        list(words),
        dict(environment),
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGTERM],
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    facts = read_facts(pid)
    return Daemon(role=role, pid=pid, start_ticks=0 if facts is None else facts.start_ticks)


def find_process(daemon: Daemon) -> psutil.Process | None:
    """Return the daemon's process, or None where it is dead (a zombie of ours is reaped)."""
    with suppress(ChildProcessError):
        os.waitpid(daemon.pid, os.WNOHANG)
    facts = read_facts(daemon.pid)
    if facts is None or facts.start_ticks != daemon.start_ticks:
        return None
    try:
        return psutil.Process(daemon.pid)
    except psutil.NoSuchProcess:
        return None


def end_daemons(daemons: Iterable[Daemon], within_s: float) -> None:
    """End daemons: SIGTERM, and SIGKILL for what is left after ``within_s`` seconds."""
    pinned = [found for daemon in daemons if (found := pin(daemon.pid, daemon.start_ticks)) is not None]
    end(pinned, within_s, politely=True)
