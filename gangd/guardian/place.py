"""Where an agent's state file lives: in the folder that the site names, but in memory.

The switch thread stores into the mapped file. On a disk file system such a store can wait for a journal, for
milliseconds and with every other thread of the agent; on tmpfs it can't. So if the folder is on disk, the
file is kept in ``/dev/shm``, in a folder of this user alone whose name is derived from the folder's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from osub.errors import HostError

SHM = Path("/dev/shm")  # noqa: S108  (its own folder there is private, and checked)
MOUNTS = Path("/proc/self/mounts")


def state_path(folder: Path, node: str, mounts: Path = MOUNTS) -> Path:
    """Path of the state file of the agent of ``node`` that was given ``folder``."""
    return live_folder(folder, mounts) / f"agent-{node}.state"


def live_folder(folder: Path, mounts: Path = MOUNTS) -> Path:
    """Return ``folder`` itself if it is in memory, else its stand-in; neither need exist yet."""
    real = folder.resolve()
    if _in_memory(real, mounts) or not _in_memory(SHM, mounts) or not os.access(SHM, os.W_OK):
        return real
    name = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    return SHM / f"gangd-{os.geteuid()}-{name}"


def make_private(folder: Path) -> None:
    """Make a folder for this user alone, or make sure that it is one.

    Raises
    ------
    HostError
        It cannot be made, or it belongs to somebody else, or others may write to it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise HostError(f"cannot make {folder}: {error.strerror}; choose another --state") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise HostError(f"{folder} is not a folder of this user alone; remove it")


def discard(path: Path, fd: int) -> None:
    """Remove the state file ``path`` if it is the one that ``fd`` has open, and an empty stand-in folder.

    Called when nothing that the file records is frozen any more; a later agent's file is left alone.
    """
    with contextlib.suppress(OSError):
        here, ours = path.stat(follow_symlinks=False), os.fstat(fd)
        if (here.st_dev, here.st_ino) == (ours.st_dev, ours.st_ino):
            path.unlink()
        if path.parent.parent == SHM:
            path.parent.rmdir()  # fails while agents of other nodes use it


def _in_memory(path: Path, mounts: Path) -> bool:
    best, kind = "", ""
    for line in mounts.read_text().splitlines():
        _, where, this_kind, *_ = line.split(" ")
        where = where.encode().decode("unicode_escape")  # blanks are written \040
        if len(where) >= len(best) and path.is_relative_to(where):
            best, kind = where, this_kind
    return kind in ("tmpfs", "ramfs")
