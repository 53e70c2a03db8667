"""Cpu cgroups: one that is open, and which one a process is in.

One open cpu cgroup that yields and gets its weight back: Slurm's folders and our own groups alike.

Which cpu cgroup a process is in, and how many cores its threads can keep busy: facts from ``/proc``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from foundation.trust import closing_fd, open_entry
from gangd.freezer.holder import Did, Ledger, StepKey, Write
from gangd.freezer.procfs import PROC, is_slurmstepd, read_stat
from gangd.freezer.tree import is_gone
from gangd.hold.cpu_priority import CpuWeightControl
from gangd.hold.deprioritizer import Yielded

_COUNTED = 256
"""Processes whose threads are counted; a job of more is taken to use all of its cores."""


def cpu_path(pid: int, proc: Path = PROC, *, unified: bool = False) -> str | None:
    """Path of a process in v1's ``cpu`` hierarchy or the unified one; None if one of them is not there."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" if unified else "cpu" in controllers.split(","):
            return path
    return None


def cpu_group(pid: int, mount: Path, proc: Path = PROC) -> str | None:
    """Path of the group among whose tasks the policy of a process counts, less the leading slash.

    With cgroup v2 it is that of the nearest folder that has the cpu controller; empty for the top.
    """
    path = cpu_path(pid, proc)
    if path is not None:
        return path.strip("/")
    path = cpu_path(pid, proc, unified=True)
    if path is None:
        return None
    path = path.strip("/")
    while path and not (mount / path / "cpu.weight").exists():
        path = path.rpartition("/")[0]
    return path


def born_at(pids: Iterable[int], proc: Path = PROC, *, unified: bool = False) -> str | None:
    """Path at which the tasks of a job begin: that of the slurmstepd which is the parent of one of them."""
    members = set(pids)
    for pid in members:
        stat = read_stat(pid, proc)
        if stat is not None and stat.parent not in members and is_slurmstepd(stat.parent, proc):
            return cpu_path(stat.parent, proc, unified=unified)
    return None


def enable_cpu(dir_fd: int) -> None:
    """Enable ``cpu`` for what is in an open cgroup (v2); raises OSError."""
    with closing_fd(open_entry(dir_fd, "cgroup.subtree_control", os.O_WRONLY)) as fd:
        os.write(fd, b"+cpu")


def is_daemon(pid: int, proc: Path = PROC) -> bool:
    """Whether a process is slurmstepd itself, and not a task that it has forked and that has yet to begin."""
    if not is_slurmstepd(pid, proc):
        return False
    stat = read_stat(pid, proc)
    return stat is None or not is_slurmstepd(stat.parent, proc)


def width(pids: tuple[int, ...], cores: int, proc: Path = PROC) -> int:
    """How many of ``cores`` the processes can keep busy: as many as they have threads."""
    if len(pids) >= min(cores, _COUNTED):
        return cores
    threads = 0
    for pid in pids:
        try:
            threads += max(0, (proc / str(pid) / "task").stat().st_nlink - 2)
        except OSError:
            continue
    return max(1, min(threads, cores))


@dataclass(slots=True, kw_only=True)
class CpuGroup:
    """An open cgroup.

    Attributes
    ----------
    path
        Where it is, below the mount.
    fds
        The files that turn it, by name.
    slot
        Its record in the ledger; None while the ledger is full.
    weight
        What it has when it does not yield.
    low
        It is held by us.
    torn
        Its release has begun and is not complete: it may be low or not, and both have to be written anew.
    """

    path: str
    fds: dict[str, int]
    weight: int
    slot: int | None = None
    low: bool = False
    torn: bool = False

    def note(self, write: Write) -> None:
        """See ``WriteTarget``."""
        self.torn = not write.completes
        if write.completes:
            self.low = write.holds

    def close(self) -> None:
        """Close the files."""
        for fd in self.fds.values():
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Turner:
    """Turns cpu cgroups; its caller makes sure that no other thread does meanwhile.

    Parameters
    ----------
    knob
        With which files.
    ledger
        Remembers what yields, for the guardian.
    write
        How control files are written.
    """

    knob: CpuWeightControl
    ledger: Ledger
    write: Callable[[int, bytes, int], int]

    def turn(self, group: CpuGroup, *, low: bool) -> Yielded:
        """Let a cgroup yield, or give it its weight back."""
        if group.low is low and not group.torn:
            return Yielded(Did.NOTHING)
        if group.slot is None:
            return Yielded(Did.FAILED, "the ledger is full: it does not yield")
        if low:
            self.ledger.hold(group.slot)
        try:
            for file, data in self.knob.writes(group.weight, low=low):
                self.write(group.fds[file], data, 0)
        except OSError as error:
            if group.low:
                group.torn = True
            else:
                self.ledger.release(group.slot)
            if is_gone(error):
                return Yielded(Did.GONE)
            return Yielded(Did.FAILED, f"{group.path}: {error.strerror}")
        group.low, group.torn = low, False
        if not low:
            self.ledger.release(group.slot)
        return Yielded(Did.WROTE)

    def plan(
        self, group: CpuGroup, key: StepKey, ours: dict[int, bool], *, holds: bool
    ) -> list[Write] | None:
        """List what ``turn`` would write; see ``Holder``."""
        if group.slot is None or group.torn:
            return None
        if ours.get(group.slot, group.low) is holds:
            return []
        ours[group.slot] = holds
        writes = self.knob.writes(group.weight, low=holds)
        return [
            Write(
                key,
                holds,
                group.fds[file],
                data,
                group.slot,
                group,
                completes=place == len(writes),
                yields=True,
            )
            for place, (file, data) in enumerate(writes, 1)
        ]
