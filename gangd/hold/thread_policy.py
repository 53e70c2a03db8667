"""The scheduling policy of threads: SCHED_IDLE and back. Standard library only: the guardian uses this too.

Anybody may give his own threads SCHED_IDLE, but not everybody may take it back: the kernel treats it as a
nice value of 20 and asks for ``CAP_SYS_NICE`` or an ``RLIMIT_NICE`` of the thread, not of the asker, that
reaches its nice value (``kernel/sched/syscalls.c``, ``user_check_sched_setscheduler``). The usual limit is 0.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from gangd.freezer.procfs import PROC, ProcStat, read_stat, scan

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
