"""CPU priority of tasks: the weight of their cgroup, and the policy of their threads.

The files of a cpu cgroup that make its tasks yield to those of sibling cgroups.

``cpu.idle`` (Linux 5.15; both generations) gives a cgroup the weight 3 of 1024 and lets any other task
preempt it at once; it takes the place of the weight, which is the default again after 0 was written to it.
Without it the least weight does nearly the same. Kernel: ``kernel/sched/fair.c`` (``sched_group_set_idle``),
``cgroup-v2.rst``, ``sched-design-CFS.rst``. Standard library only: the guardian uses this module too.

The scheduling policy of threads: SCHED_IDLE and back. Standard library only: the guardian uses this too.

Anybody may give his own threads SCHED_IDLE, but not everybody may take it back: the kernel treats it as a
nice value of 20 and asks for ``CAP_SYS_NICE`` or an ``RLIMIT_NICE`` of the thread, not of the asker, that
reaches its nice value (``kernel/sched/syscalls.c``, ``user_check_sched_setscheduler``). The usual limit is 0.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gangd.freezer.procfs import PROC, ProcStat, read_stat, scan
from gangd.freezer.tree import JOB2, OWN_GROUP, write_below

_JOB = r"job_(?P<job>[0-9]+)"
_SLURM1 = r"slurm(?:_[A-Za-z0-9._-]+)?/uid_[0-9]+(?:/" + _JOB + r")?"
_SLURM2 = r"(?:[A-Za-z0-9._@:\\-]+/){0,4}(?:[A-Za-z0-9._-]+_)?slurmstepd\.scope/" + JOB2


@dataclass(frozen=True, slots=True)
class CpuWeightControl:
    """One generation's files, and with which of them a cgroup is held.

    Attributes
    ----------
    kind
        Number in the ledger.
    by_idle
        Whether ``cpu.idle`` holds; else the weight.
    weight_file, least, usual, most
        File of the weight, its least value, what a cgroup has when it is made, and its most.
    pattern
        Paths below the mount that may be written.
    """

    kind: int
    by_idle: bool
    weight_file: str
    least: int
    usual: int
    most: int
    pattern: re.Pattern[str]

    @property
    def unified(self) -> bool:
        """Whether it is of cgroup v2."""
        return self.weight_file != "cpu.shares"

    @property
    def file(self) -> str:
        """Name of the file that holds."""
        return "cpu.idle" if self.by_idle else self.weight_file

    @property
    def low(self) -> bytes:
        """What is written to hold."""
        return b"1" if self.by_idle else b"%d" % self.least

    def writes(self, weight: int, *, low: bool) -> tuple[tuple[str, bytes], ...]:
        """Return what is written to which file, in order, to hold, or to have ``weight`` again."""
        return ((self.file, self.low),) if low else self.normal(weight)

    def normal(self, weight: int) -> tuple[tuple[str, bytes], ...]:
        """Return what is written to which file, in order, so that the cgroup has ``weight`` again."""
        back = ((self.weight_file, b"%d" % weight),)
        if not self.by_idle:
            return back
        return (("cpu.idle", b"0"), *(back if weight != self.usual else ()))

    def allows(self, path: str) -> bool:
        """Whether a path below the mount may be written."""
        if any(part in ("", ".", "..") for part in path.split("/")):
            return False
        return self.pattern.fullmatch(path) is not None

    def restore(self, root: Path, path: str) -> bool:
        """Give a cgroup its usual weight by path, for who holds no descriptors; False if it is gone.

        Raises OSError if it is there and cannot be written.
        """
        if not self.allows(path):
            return False
        write_below(root, path, "cpu.idle", b"0")  # a kernel before 5.15 has none
        return write_below(root, path, self.weight_file, b"%d" % self.usual)


_ANY1 = re.compile(f"{OWN_GROUP}|{_SLURM1.replace('?P<job>', '?:')}")
_ANY2 = re.compile(f"{OWN_GROUP}|{_SLURM2.replace('?P<job>', '?:')}")
IDLE1 = CpuWeightControl(4, True, "cpu.shares", 2, 1024, 262_144, _ANY1)
SHARES1 = CpuWeightControl(5, False, "cpu.shares", 2, 1024, 262_144, _ANY1)
IDLE2 = CpuWeightControl(6, True, "cpu.weight", 1, 100, 10_000, _ANY2)
WEIGHT2 = CpuWeightControl(7, False, "cpu.weight", 1, 100, 10_000, _ANY2)
KNOBS = {knob.kind: knob for knob in (IDLE1, SHARES1, IDLE2, WEIGHT2)}


_CAP_SYS_NICE = 23
_FAIR = (os.SCHED_OTHER, os.SCHED_BATCH)


def has_cap_nice(proc: Path = PROC) -> bool:
    """Whether this process may give any thread any policy."""
    try:
        text = (proc / "self" / "status").read_text()
        mask = int(text.split("\nCapEff:", 1)[1].split(None, 1)[0], 16)
    except (OSError, IndexError, ValueError):
        return False
    return bool(mask >> _CAP_SYS_NICE & 1)


def may_return(pid: int) -> bool:
    """Whether we may take SCHED_IDLE back from the threads of a process without ``CAP_SYS_NICE``."""
    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_NICE)
        nice = os.getpriority(os.PRIO_PROCESS, pid)
    except OSError:
        return False
    return soft == resource.RLIM_INFINITY or soft >= 20 - nice


def policy_of(tid: int) -> int | None:
    """Policy of a thread without its flags; None if it is gone."""
    try:
        return os.sched_getscheduler(tid) & ~os.SCHED_RESET_ON_FORK
    except OSError:
        return None


def set_policy(tid: int, policy: int) -> None:
    """Change the policy of a thread, its nice value and its flags kept; raises OSError."""
    flags = os.sched_getscheduler(tid) & os.SCHED_RESET_ON_FORK
    os.sched_setscheduler(tid, policy | flags, os.sched_param(0))


def is_fair(policy: int | None) -> bool:
    """Whether a policy is one of those that SCHED_IDLE may replace for a while."""
    return policy in _FAIR


def threads(folder: str | int) -> Iterator[int]:
    """Threads of a process, from the path or a descriptor of its ``task`` folder; none if it is gone."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return
    for name in names:
        yield int(name)


def restore(pid: int, start_ticks: int, table: dict[int, ProcStat]) -> bool:
    """Take SCHED_IDLE back from a process and from what descends from it; False if the process is gone.

    For who knows only what was recorded: what was born while its parent yielded is in no record.
    ``table`` has all processes, or is empty and filled here. Raises OSError.
    """
    stat = read_stat(pid)
    gone = stat is None or stat.start_ticks != start_ticks or not stat.alive
    if not table:
        table.update({each.pid: each for each in scan()})
    family = () if gone and pid in table else _family(pid, table)  # another process has that pid now
    for member in family if gone else (pid, *family):
        for tid in threads(f"/proc/{member}/task"):
            if policy_of(tid) == os.SCHED_IDLE:
                set_policy(tid, os.SCHED_OTHER)
    return not gone


def _family(pid: int, table: dict[int, ProcStat]) -> tuple[int, ...]:
    """Descendants of a process, and all others of the session that it leads or led."""
    members = {stat.pid for stat in table.values() if stat.session == pid}
    members.add(pid)
    grown = True
    while grown:
        born = {stat.pid for stat in table.values() if stat.parent in members} - members
        members |= born
        grown = bool(born)
    return tuple(sorted(members - {pid}))
