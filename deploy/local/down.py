"""Taking a cluster down: its processes, cgroups, memory and files.

Taking a cluster down: every process that is proven to be its own, its cgroups, its memory, its files.

What is done goes by the path of the home and by the list in its mark. What ``cluster.json`` says is not
needed, so that nothing in it can lead elsewhere, and `down` works whatever killed `up`, or an earlier `down`.

Shared memory: the message-passing library removes what ranks share when they have all finished, and only
then. What the ranks of a cluster have mapped when it ends is removed with them. What those left that had been
ended before is known by three things together: it is the user's own, made since the cluster was, and no
process has it any more.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from deploy.local.belongings import FolderName
from deploy.local.home import Home
from deploy.local.layout import names_of
from deploy.local.members import PROC, Kin, ProcessFacts, end_all, kin_of, living_daemons, living_members
from foundation.errors import ClusterError, TrustError
from foundation.files import SHM, is_segment
from foundation.trust import closing_fd, names_in, open_folder

CGROUP_ROOT = Path("/sys/fs/cgroup")


def cluster_cgroups(letters: str, root: Path = CGROUP_ROOT) -> list[Path]:
    """Return the top cgroups of every node of the cluster with these letters."""
    node = f"{letters}-n*"
    patterns = (
        f"*/slurm_{node}",
        f"*/gangd_{node}_job_*",  # in which agents let jobs yield
        f"system.slice/{node}_slurmstepd.scope",
        f"{node}_slurmstepd.scope",
    )
    return [path for pattern in patterns for path in root.glob(pattern) if path.is_dir()]


def thaw_all(tops: Iterable[Path]) -> None:
    """Thaw every cgroup below, so that the processes in them can die."""
    for top in tops:
        for below in [top, *(path for path in top.rglob("*") if path.is_dir())]:
            for control, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                with suppress(OSError):
                    if (below / control).exists():
                        (below / control).write_text(word)


def remove_all(tops: Iterable[Path], within_s: float) -> list[Path]:
    """Remove cgroups from the leaves up; returns those still there after ``within_s`` seconds."""
    left = list(tops)
    deadline = time.monotonic() + within_s
    while left:
        for top in left:
            below = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
            for path in [*below, top]:
                with suppress(OSError):
                    path.rmdir()
        left = [top for top in left if top.exists()]
        if left and time.monotonic() > deadline:
            break
        if left:
            time.sleep(0.02)
    return left


_GANG = ("gangd.main", "gangd.agent.main")
_SLURM = ("slurmctld", "slurmd")
_SUPERVISOR = ("deploy.local.supervisor",)
_MOST_NAMED = 10
_KILLED_S = 5.0
_SEARCHES = 4
"""What a task started while it was looked for is found the next time."""

_LEDGER = "agent-*.state"


def take_down(home: Home, *, keep_logs: bool) -> tuple[FolderName, ...]:
    """End the cluster in ``home`` and remove everything that `up` made; safe to repeat.

    Parameters
    ----------
    home
        The open home.
    keep_logs
        Whether to leave the daemons' logs, if there are any.

    Returns
    -------
    tuple
        The folders that were kept for their logs.

    Raises
    ------
    ClusterError
        A process or cgroup of the cluster survived; the message names it. Its files are then left.
    """
    names = names_of(home.path)
    kin = kin_of(names, home.path, home.short)
    with _before_all_others():
        remove_segments(end_members(kin), home.marked_s)
    remove_ledgers(kin.ledgers)
    keep: tuple[FolderName, ...] = ("log",) if keep_logs and home.holds_any("log") else ()
    home.empty(keep)
    return keep


def end_members(kin: Kin) -> set[str]:
    """End every process of a cluster; returns the paths of the memory that its tasks shared.

    Their state is removed afterwards, so each is killed. The supervisor comes first, so that nothing is
    started again, then the gang's daemons, so that nothing is frozen any more, then Slurm's, so that no job
    is started, then all others, as often as a search still finds one.
    """
    daemons = living_daemons(kin).values()
    ordered = [one for programs in (_SUPERVISOR, _GANG, _SLURM) for one in daemons if _runs(one, programs)]
    end_all(ordered, _KILLED_S)
    segments: set[str] = set()
    for _ in range(_SEARCHES):
        thaw_all(cluster_cgroups(kin.names.letters))
        members = living_members(kin)
        if not members:
            break
        segments |= mapped_segments(members)
        end_all(members.values(), _KILLED_S)
    stuck = remove_all(cluster_cgroups(kin.names.letters), within_s=5.0)
    if members or stuck:
        left = [f"process {pid}" for pid in members] + [str(path) for path in stuck]
        more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        raise ClusterError(
            f"left after the cluster's end: {', '.join(left[:_MOST_NAMED])}{more}; try `down` again"
        )
    return segments


@contextmanager
def _before_all_others() -> Iterator[None]:
    """Run this thread before all others where the system permits it: its cluster may fill the host."""
    before, how = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, how)


def _runs(facts: ProcessFacts, programs: tuple[str, ...]) -> bool:
    return any(word.rpartition("/")[2] in programs for word in facts.words)


def mapped_segments(pids: Iterable[int], proc: Path = PROC, shm: Path = SHM) -> set[str]:
    """Return the names of the segments that any of these processes has mapped."""
    found: set[str] = set()
    for pid in pids:
        with suppress(OSError):
            for line in (proc / str(pid) / "maps").read_text(errors="surrogateescape").splitlines():
                folder, _, name = line.removesuffix(" (deleted)").rpartition("/")
                if folder.endswith(f" {shm}") and is_segment(name):
                    found.add(name)
    return found


def remove_segments(ours: set[str], since_s: float | None, shm: Path = SHM, proc: Path = PROC) -> None:
    """Remove segments that no process has any more.

    Parameters
    ----------
    ours
        Names of those that the cluster's own processes had.
    since_s
        When the cluster was made, seconds since the epoch: orphans of this user that are younger go as well.
    """
    orphans = ours | (set() if since_s is None else _young(shm, since_s))
    if not orphans:
        return
    in_use = mapped_segments((int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()), proc, shm)
    for name in orphans - in_use:
        with suppress(OSError):
            (shm / name).unlink()


def remove_ledgers(folders: Iterable[Path], shm: Path = SHM) -> None:
    """Remove the state files of agents that were killed with their guardians, and their folders in memory."""
    for folder in folders:
        if folder.parent != shm:
            continue
        with suppress(OSError, TrustError):
            with closing_fd(open_folder(folder)) as fd:
                for name in names_in(fd):
                    if fnmatchcase(name, _LEDGER):
                        os.unlink(name, dir_fd=fd)
            folder.rmdir()


def _young(shm: Path, since_s: float) -> set[str]:
    found = set()
    for path in shm.iterdir():
        with suppress(OSError):
            entry = path.lstat()
            if (
                is_segment(path.name)
                and stat.S_ISREG(entry.st_mode)
                and entry.st_uid == os.geteuid()
                and entry.st_ctime >= since_s
            ):
                found.add(path.name)
    return found
