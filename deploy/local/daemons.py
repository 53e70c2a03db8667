"""Starting, recognising and ending the daemons of an embedded cluster.

A daemon is started in the foreground in a session of its own, so that its pid is known at once. It
is recognised later by pid *and* start time, so that a pid that the kernel has given to somebody
else is never signalled.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

# psutil's start time is read in clock ticks (1/100 s) against the boot time.
_SAME_START_S = 0.05


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """A process that we started: its role (``munged``, ``slurmctld``, ``slurmd NODE``), pid, start time."""

    role: str
    pid: int
    started: float


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
    try:
        started = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        started = 0.0
    return Daemon(role=role, pid=pid, started=started)


def find_process(daemon: Daemon) -> psutil.Process | None:
    """Return the daemon's process, or None where it is dead (a zombie of ours is reaped)."""
    with suppress(ChildProcessError):
        os.waitpid(daemon.pid, os.WNOHANG)
    try:
        process = psutil.Process(daemon.pid)
        same = abs(process.create_time() - daemon.started) <= _SAME_START_S
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def end_daemons(daemons: Iterable[Daemon], within_s: float) -> None:
    """End daemons: SIGTERM, and SIGKILL for what is left after ``within_s`` seconds."""
    left = {daemon: process for daemon in daemons if (process := find_process(daemon))}
    for name in ("terminate", "kill"):
        for process in left.values():
            with suppress(psutil.NoSuchProcess):
                process.resume()
                getattr(process, name)()
        deadline = time.monotonic() + within_s
        while left and time.monotonic() < deadline:
            left = {daemon: process for daemon in left if (process := find_process(daemon))}
            time.sleep(0.01)


def marked_processes(cluster_name: str) -> list[psutil.Process]:
    """Return every process whose environment says that it belongs to a cluster.

    Slurm sets ``SLURM_CLUSTER_NAME`` in every task, and we set ``OSUB_CLUSTER`` in every slurmd,
    from which slurmstepd has it; so a task that left its process tree is found as well.
    """
    marks = {f"SLURM_CLUSTER_NAME={cluster_name}".encode(), f"OSUB_CLUSTER={cluster_name}".encode()}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError, psutil.NoSuchProcess):
            if marks & set((entry / "environ").read_bytes().split(b"\0")):
                found.append(psutil.Process(int(entry.name)))
    return found


def kill_processes(processes: Iterable[psutil.Process], within_s: float) -> list[psutil.Process]:
    """Kill processes, stopped ones included, and return those that are still there after ``within_s``."""
    mortal = list(processes)
    for process in mortal:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()
    _, alive = psutil.wait_procs(mortal, timeout=within_s)
    return [process for process in alive if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
