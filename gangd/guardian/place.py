"""Path of an agent's state file: in the folder that the site names, but in memory.

The switch thread stores into the mapped file, and must not wait for a disk (``foundation.in_memory``): where
the folder is on one, the file is kept in a stand-in, a folder of this user alone.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from foundation.errors import HostError, TrustError
from foundation.in_memory import MOUNTS, SHM, live_folder, stand_in
from foundation.trust import make_folder

STATE_DIR = Path("/run/gangd")
"""Folder of an agent's state file unless the site says otherwise."""


def state_path(folder: Path, node: str, mounts: Path = MOUNTS) -> Path:
    """Path of the state file of the agent of ``node`` that was given ``folder``."""
    return live_folder(folder, mounts) / f"agent-{node}.state"


def ended_path(folder: Path, node: str) -> Path:
    """Path of the record of how the last agent of ``node`` ended: in the site's folder, which outlasts it."""
    return folder.resolve() / f"agent-{node}.ended"


def ledger_folders(folder: Path) -> tuple[Path, ...]:
    """Return every folder in which an agent that was given ``folder`` may have kept its state file.

    Which of them it was depends on what stood in ``/dev/shm`` when the agent began.
    """
    return tuple(dict.fromkeys((stand_in(folder), folder.resolve())))


def all_stand_ins() -> tuple[Path, ...]:
    """Return the stand-ins of all folders of this user; what others put next to them is left out."""
    found = []
    for path in sorted(SHM.glob(f"gangd-{os.geteuid()}-*")):
        with contextlib.suppress(OSError):
            entry = path.lstat()
            if stat.S_ISDIR(entry.st_mode) and entry.st_uid == os.geteuid():
                found.append(path)
    return tuple(found)


def make_private(folder: Path) -> None:
    """Make a folder for this user alone, or make sure that it is one.

    Raises
    ------
    HostError
        It cannot be made, or it belongs to another user, or others may write to it.
    """
    try:
        fd, _ = make_folder(folder, 0o700)
    except (OSError, TrustError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise HostError(f"no folder of this user alone at {folder}: {why}; choose another --state") from error
    os.close(fd)


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
