"""Which cpu cgroup a process is in, and how many cores its threads can keep busy: facts from ``/proc``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gangd.freezer.procfs import PROC, is_slurmstepd, read_stat

_COUNTED = 256
"""Processes whose threads are counted; a job of more is taken to use all of its cores."""


def cpu_path(pid: int, proc: Path = PROC) -> str | None:
    """Path of a process in the v1 hierarchy that has ``cpu``; None if it is gone, or there is none."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path
    return None


def cpu_group(pid: int, mount: Path, proc: Path = PROC) -> str | None:
    """Path of the group among whose tasks the policy of a process counts, less the leading slash.

    With cgroup v2 it is that of the nearest folder that has the cpu controller; empty for the top.
    """
    path = cpu_path(pid, proc)
    if path is not None:
        return path.strip("/")
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    unified = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    while unified and not (mount / unified / "cpu.weight").exists():
        unified = unified.rpartition("/")[0]
    return unified


def born_at(pids: Iterable[int], proc: Path = PROC) -> str | None:
    """Path at which the tasks of a job begin: that of the slurmstepd which is the parent of one of them."""
    members = set(pids)
    for pid in members:
        stat = read_stat(pid, proc)
        if stat is not None and stat.parent not in members and is_slurmstepd(stat.parent, proc):
            return cpu_path(stat.parent, proc)
    return None


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
