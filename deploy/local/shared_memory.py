"""What a cluster's jobs and agents leave in shared memory when they are ended from outside.

The message-passing library removes the memory that ranks share when they have all finished, and only then.
What the ranks of a cluster have mapped when it ends is removed with them. What those left that had been ended
before is known by three things together: it is the user's own, made since the cluster was, and no process
has it any more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from deploy.local.processes import PROC
from foundation.errors import TrustError
from foundation.in_memory import SHM
from foundation.trust import names_in, open_folder

SEGMENT = "mpich_shm_"
_LEDGER = "agent-*.state"


def mapped_segments(pids: Iterable[int], proc: Path = PROC, shm: Path = SHM) -> set[str]:
    """Return the names of the segments that any of these processes has mapped."""
    prefix = f"{shm}/{SEGMENT}"
    found: set[str] = set()
    for pid in pids:
        with suppress(OSError):
            for line in (proc / str(pid) / "maps").read_text(errors="surrogateescape").splitlines():
                path = line.partition("/")[1] + line.partition("/")[2]
                if path.startswith(prefix):
                    found.add(path.removesuffix(" (deleted)").removeprefix(f"{shm}/"))
    return found


def remove_segments(ours: set[str], since_s: float | None, shm: Path = SHM, proc: Path = PROC) -> None:
    """Remove segments that nobody has any more.

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
            fd = open_folder(folder)
            try:
                for name in names_in(fd):
                    if fnmatchcase(name, _LEDGER):
                        os.unlink(name, dir_fd=fd)
            finally:
                os.close(fd)
            folder.rmdir()


def _young(shm: Path, since_s: float) -> set[str]:
    found = set()
    for path in shm.glob(f"{SEGMENT}*"):
        with suppress(OSError):
            entry = path.lstat()
            if stat.S_ISREG(entry.st_mode) and entry.st_uid == os.geteuid() and entry.st_ctime >= since_s:
                found.add(path.name)
    return found
