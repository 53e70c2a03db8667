"""Processes, and which of them belong to a cluster.

Processes as the kernel tells of them, and ending them without ever meeting another one.

A pid may be reused at any time. So a process is pinned by a pidfd first and looked at then;
if it still runs after the look, what was seen is its own. Signals go through the pidfd.

Which processes belong to a cluster: by the kernel's word, and not by what a file says.

A process belongs to a cluster if it is

* a daemon: of the cluster's own user, started with the cluster's mark in its environment, and with a path of
  the cluster's home in its command line (or called ``slurm...``, for those that write a title over it);
* a task: in the cgroup of one of its nodes, which only root can bring about; or of the cluster's own user,
  with the environment that slurmstepd gives to a task on one of its nodes;
* a guardian of one of its agents: of the cluster's own user, with the agent's state file open;
* the child of one that does.

What the process of another user claims in its environment counts for nothing.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.local.layout import Names
from foundation.errors import ClusterError
from foundation.files import live_folder, stand_in
from foundation.process_stat import PARENT, START_TICKS, STATE, split_stat
from foundation.trust import closing_fd

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
    with closing_fd(os.open(file, os.O_RDONLY | os.O_CLOEXEC)) as fd:
        content = piece = os.read(fd, 1 << 16)
        while piece:
            piece = os.read(fd, 1 << 16)
            content += piece
        return content


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


MARK = "OSUB_CLUSTER"
MOST_PINNED = 500
"""Processes that are ended at once; each takes a descriptor, of which a user has 1,024 by default."""
_GUARDIAN = "gangd.guardian.guardian_process"


@dataclass(frozen=True, slots=True)
class Kin:
    """What tells a cluster's processes from all others.

    Attributes
    ----------
    names
        Of the cluster and its nodes.
    folders
        Its home, and the stand-in with the short path.
    ledgers
        Folders in which its agents may keep their state files.
    user
        Whose cluster it is.
    """

    names: Names
    folders: tuple[Path, ...]
    ledgers: tuple[Path, ...]
    user: int


def kin_of(names: Names, home: Path, short: Path) -> Kin:
    """Return what tells the processes of this user's cluster in ``home``."""
    agents = home / "gang" / "agents"
    ledgers = tuple(dict.fromkeys((agents, live_folder(agents), stand_in(agents))))
    return Kin(names, tuple(dict.fromkeys((home, short))), ledgers, os.geteuid())


def is_daemon(facts: ProcessFacts, kin: Kin) -> bool:
    """Whether a process is one that `up` started, or one that slurmd or slurmctld started for itself."""
    if facts.user != kin.user or f"{MARK}={kin.names.cluster}" not in facts.environment:
        return False
    return facts.name.startswith("slurm") or any(_names_one(word, kin.folders) for word in facts.words)


def find_members(facts: Iterable[ProcessFacts], kin: Kin) -> dict[int, ProcessFacts]:
    """Return the processes that belong to a cluster, by pid."""
    known = {one.pid: one for one in facts}
    members = {
        pid: one
        for pid, one in known.items()
        if is_daemon(one, kin) or _is_task(one, kin) or _is_guardian(one, kin)
    }
    grown = True
    while grown:
        children = {
            pid: one
            for pid, one in known.items()
            if pid not in members
            and (parent := members.get(one.parent)) is not None
            and parent.start_ticks <= one.start_ticks  # else its parent has died, and the pid is another's
        }
        members |= children
        grown = bool(children)
    return members


def living_members(kin: Kin) -> dict[int, ProcessFacts]:
    """Return the members that live now.

    Raises
    ------
    ClusterError
        This very process is one, or the child of one: it would end itself.
    """
    _refuse_own(kin)
    return find_members(all_facts(), kin)


def living_daemons(kin: Kin) -> dict[int, ProcessFacts]:
    """Return the daemons that run now, by pid; quick with tens of thousands of tasks. Raises as above."""
    _refuse_own(kin)
    marked = all_facts(variable=f"{MARK}={kin.names.cluster}")
    return {one.pid: one for one in marked if is_daemon(one, kin)}


def _refuse_own(kin: Kin) -> None:
    pid = os.getpid()
    while (one := read_facts(pid)) is not None:
        if find_members([one], kin):
            raise ClusterError(f"this command runs in a job of {kin.names.cluster}: run it outside of it")
        pid = one.parent


def end_all(members: Iterable[ProcessFacts], within_s: float) -> None:
    """End members as ``end`` does, some at a time: a user may have more processes than this one may open."""
    waiting = list(members)
    for first in range(0, len(waiting), MOST_PINNED):
        some = waiting[first : first + MOST_PINNED]
        pinned = (pin(one.pid, one.start_ticks) for one in some)
        end([one for one in pinned if one is not None], within_s)


def _is_task(facts: ProcessFacts, kin: Kin) -> bool:
    nodes = re.escape(kin.names.letters) + "-n[0-9]+"
    if any(
        re.search(rf"/(slurm_{nodes}|gangd_{nodes}_job_[0-9]+|{nodes}_slurmstepd\.scope)(/|$)", path)
        for path in facts.cgroups
    ):
        return True
    return (
        facts.user == kin.user
        and f"SLURM_CLUSTER_NAME={kin.names.cluster}" in facts.environment
        and any(re.fullmatch(f"SLURMD_NODENAME={nodes}", word) for word in facts.environment)
    )


def _is_guardian(facts: ProcessFacts, kin: Kin) -> bool:
    if facts.user != kin.user or not any(_GUARDIAN in word for word in facts.words):
        return False
    return any(facts.opens_below(folder) for folder in kin.ledgers)


def _names_one(word: str, folders: tuple[Path, ...]) -> bool:
    """Whether a word is a path below one of the folders, or an option with one (``--socket=PATH``)."""
    path = word.partition("=")[2] if word.startswith("--") else word
    return path.startswith("/") and any(Path(path).is_relative_to(folder) for folder in folders)
