"""Processes of users who have jobs here, outside of every job: what no freeze reaches.

They run on the cores of whoever owns the slice (a login by ssh without ``pam_slurm_adopt``, a daemon that
escaped). The agent never touches them; it tells the administrator.
"""

from __future__ import annotations

from pathlib import Path

from gangd.freezer.procfs import PROC, SLURM_DAEMONS, owner, scan

FIRST_USER = 1000
_JOB_MARKS = ("/job_",)


def find_strays(uids: frozenset[int], proc: Path = PROC) -> dict[int, list[int]]:
    """Find processes of the users ``uids`` (system users left out) that are in no job's cgroup, by user."""
    wanted = {uid for uid in uids if uid >= FIRST_USER}
    found: dict[int, list[int]] = {}
    if not wanted:
        return found
    for stat in scan(proc):
        if not stat.alive or stat.comm in SLURM_DAEMONS:
            continue
        uid = owner(stat.pid, proc)
        if uid in wanted and not _in_job(stat.pid, proc):
            found.setdefault(uid, []).append(stat.pid)
    return found


def _in_job(pid: int, proc: Path) -> bool:
    try:
        text = (proc / str(pid) / "cgroup").read_text()
    except OSError:
        return True  # it has ended
    return any(mark in text for mark in _JOB_MARKS)
