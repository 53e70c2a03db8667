"""The folder in memory that replaces one on disk, for files that must never wait for a disk.

On a disk file system a store into a mapped file can wait for a journal, for milliseconds; on tmpfs it can't.
The stand-in is in ``/dev/shm``, its name made from the user and the folder's path, so a reader can find
the files without a message that names it. All users may write to ``/dev/shm``: a stranger who knows the
path can take the name first. Then the folder on disk itself is used, which is slower and as safe. Standard
library only: the guardian of an agent uses this module too.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

SHM = Path("/dev/shm")  # noqa: S108  (what is put there is private, and checked)
MOUNTS = Path("/proc/self/mounts")
_SEGMENT = re.compile(r"mpich_shm_[^/]+|[0-9]+:[0-9]+:[0-9]+")


def is_segment(name: str) -> bool:
    """Say whether an MPI library calls its shared memory so: MPICH, or libfabric's provider shm (PID:0:0)."""
    return _SEGMENT.fullmatch(name) is not None


def live_folder(folder: Path, mounts: Path = MOUNTS) -> Path:
    """Return ``folder`` itself if it is in memory or must do, else its stand-in; neither need exist yet."""
    real = folder.resolve()
    if _in_memory(real, mounts) or not _in_memory(SHM, mounts) or not os.access(SHM, os.W_OK):
        return real
    standing = stand_in(real)
    return real if _is_taken(standing) else standing


def stand_in(folder: Path) -> Path:
    """Return the path of the stand-in of a folder for this user, whether or not it is used."""
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return SHM / f"gangd-{os.geteuid()}-{name}"


def _is_taken(path: Path) -> bool:
    """Whether something of a stranger's has the name."""
    try:
        return path.lstat().st_uid != os.geteuid()
    except OSError:
        return False


def _in_memory(path: Path, mounts: Path) -> bool:
    best, kind = "", ""
    for line in mounts.read_text().splitlines():
        _, where, this_kind, *_ = line.split(" ")
        where = re.sub(r"\\([0-7]{3})", lambda blank: chr(int(blank[1], 8)), where)  # written \040
        if len(where) >= len(best) and path.is_relative_to(where):
            best, kind = where, this_kind
    return kind in ("tmpfs", "ramfs")
