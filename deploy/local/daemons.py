"""Starting, recognising and ending the daemons of an embedded cluster; waiting until they take jobs.

A daemon is started in the foreground in a session of its own, so that its pid is known at once. It
is recognised later by pid *and* start time, in ticks since the host's start, so that neither a pid that the
kernel has given to another process nor a clock that was set leads astray. Where one does not come up, its own
last words say why.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from deploy.local.layout import ClusterLayout
from deploy.local.members import MARK, read_facts
from foundation.errors import ClusterError
from foundation.slurm import CommandSlurm
from foundation.slurm.slurm_types import SlurmUnreachableError

_DEADLINE_S = 60.0
_POLL_S = 0.02
_SAYS_NOT_WHY = ("Unable to process configuration", "failed to initialize")
"""Last words of daemons of Slurm, whose reason is the error before them."""


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """A process that we started: its role (``munged``, ``slurmctld``, ``slurmd NODE``), pid, start.

    Of one that is supervised also how often it was started again, how the process before ended (a signal's
    name or an exit code), and when (seconds since the epoch).
    """

    role: str
    pid: int
    start_ticks: int
    restarts: int = 0
    ended: str | None = None
    ended_s: float | None = None


def daemon_environment(layout: ClusterLayout) -> dict[str, str]:
    """Return the environment of a cluster's daemons."""
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "SLURM_CONF": str(layout.conf),
        MARK: layout.cluster_name,
    }


def log_of(layout: ClusterLayout, role: str) -> Path:
    """Return the file to which a daemon's output is appended."""
    return layout.logs / f"{role.replace(' ', '-')}.out"


def start_daemon(
    role: str,
    words: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    blocked: Sequence[signal.Signals] = (),
) -> Daemon:
    """Start a program detached from this terminal; what it prints is appended to ``log``.

    It begins with the signals ``blocked`` blocked, and no others.
    """
    pid = os.posix_spawn(
        words[0],
        list(words),
        dict(environment),
        setsid=True,
        setsigmask=blocked,
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


def wait_for_socket(layout: ClusterLayout, munged: Daemon) -> None:
    """Wait until munged takes connections; raises ClusterError where it died or takes too long."""

    def answers() -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(layout.munge_socket))
            except OSError:
                return False
            return True

    wait_for(layout, [munged], answers, "munged takes no connections")


def wait_for_port(layout: ClusterLayout, daemons: Sequence[Daemon]) -> None:
    """Wait until slurmctld takes connections (asking it earlier costs a client many seconds)."""

    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", layout.controller_port), timeout=1.0).close()
        except OSError:
            return False
        return True

    wait_for(layout, daemons, answers, "slurmctld takes no connections")


def wait_for_nodes(layout: ClusterLayout, daemons: Sequence[Daemon], client: CommandSlurm) -> None:
    """Wait until every node has registered and can take jobs."""

    def all_up() -> bool:
        try:
            nodes = client.nodes()
        except SlurmUnreachableError:
            return False
        return len(nodes) == len(layout.nodes) and all(node.is_up for node in nodes)

    wait_for(layout, daemons, all_up, "not every node came up")


def wait_for(
    layout: ClusterLayout, daemons: Sequence[Daemon], done: Callable[[], bool], complaint: str
) -> None:
    """Wait until something is done; raises ClusterError where a daemon ended or it takes too long."""
    deadline = time.monotonic() + _DEADLINE_S
    while not done():
        for daemon in daemons:
            if find_process(daemon) is None:
                raise ClusterError(f"{daemon.role} ended at once: {last_words(layout, daemon.role)}")
        if time.monotonic() > deadline:
            raise ClusterError(f"{complaint} after {_DEADLINE_S:g} s; see {layout.logs}")
        time.sleep(_POLL_S)


def last_words(layout: ClusterLayout, role: str) -> str:
    """Return the last error, else the last line, that a daemon logged."""
    name = role.replace(" ", "-")
    lines: list[str] = []
    for path in (layout.logs / f"{name}.log", layout.logs / f"{name}.out"):
        if path.exists():
            lines += [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    faults = [line for line in lines if "fatal" in line or "Error:" in line or "already in use" in line]
    last = (faults or lines or ["it logged nothing"])[-1].strip()
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    why = [error for error in errors if "Parsing error" in error]
    if not why and any(words in last for words in _SAYS_NOT_WHY):
        why = errors
    return f"{last} ({why[-1].strip()})" if why else last
