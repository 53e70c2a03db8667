"""Shared memory of the message-passing library: whose it is, and what a killed job leaves of it.

MPICH names the files that the ranks of a node share after the job and step (``PMI_JOBID``), in a folder to
which all users may write, and takes any file of that name. A user that makes the
file first could read and change what the ranks tell each other. So the names are looked at before the library
starts and what it has mapped afterwards. (MPICH 4 and 5, ``src/util/mpir_pmi.c``, ``src/mpid/common/shm``.)

It removes the files in ``MPI_Finalize`` only. A rank that is ended before that leaves a megabyte of memory
until the host is rebooted, and a later job with the same name takes it for its own: that goes, too. The files
of libfabric's provider shm are named after a rank's process; it makes new ones and takes none that is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from foundation.errors import HostError
from foundation.files import SHM, is_segment

_ROOT = 0
# From making the file to mapping it a rank takes no longer than this, even on a host that is busy.
_FRESH_S = 30.0
_MAPPED = re.compile(r"\S+ \S+ \S+ \S+ (?P<inode>[0-9]+) +(?P<path>/.*)")


def clear_the_way(environment: Mapping[str, str], shm: Path = SHM, proc: Path = Path("/proc")) -> None:
    """Before the library starts: remove what is in the way of its names, or refuse to start.

    Raises
    ------
    HostError
        Another user has taken one of the names.
    """
    step = environment.get("PMI_JOBID")
    if not step:
        return
    for path in sorted(shm.glob(f"mpich_shm_{_hash(step):x}_*")):
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if not _is_ours(found) and os.geteuid() != _ROOT:
                raise _foreign(path, found)
            if not _is_ours(found) or not _is_used(path, found, proc):
                _remove(path, found)


def check_mapped(maps: Path = Path("/proc/self/maps"), shm: Path = SHM) -> None:
    """After the library has started: make sure that what it shares is this user's alone.

    Raises
    ------
    HostError
        It is not.
    """
    for inode, path in _mapped(maps, shm):
        try:
            found = Path(path).lstat()
        except FileNotFoundError:
            raise HostError(f"{path}, which ranks share, is gone: another user may have made it") from None
        if found.st_ino != inode or not _is_ours(found):
            raise _foreign(Path(path), found)


def discard_segments(maps: Path = Path("/proc/self/maps"), shm: Path = SHM) -> None:
    """Remove the segments that this process has mapped; other processes that mapped them keep their mapping.

    Calls nothing of the library, so that it may be called whatever the library is doing.
    """
    for _, path in _mapped(maps, shm):
        with contextlib.suppress(OSError):  # mapped in several pieces, or another rank was first
            Path(path).unlink()


def _hash(step: str) -> int:
    """Return the number that MPICH makes of a step's name: FNV-1a of 32 bits."""
    value = 0x811C9DC5
    for byte in step.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _is_ours(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_used(path: Path, found: os.stat_result, proc: Path) -> bool:
    """Whether a segment of this user's may be a living rank's: just made, or mapped by a process of his."""
    if time.time() - found.st_ctime < _FRESH_S:
        return True
    for entry in proc.iterdir():
        if entry.name.isdigit():
            for inode, mapped in _mapped(entry / "maps", path.parent):
                if (inode, mapped) == (found.st_ino, str(path)):
                    return True
    return False


def _remove(path: Path, found: os.stat_result) -> None:
    """Remove this very file, and not one that another rank has put there in the meantime."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # Of ranks that find it at once, one removes it; another user's lock on his file stops none.
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if _is_ours(found) else fcntl.LOCK_NB))
            if os.path.samestat(path.lstat(), found):
                path.unlink()
        finally:
            os.close(fd)


def _mapped(maps: Path, shm: Path) -> list[tuple[int, str]]:
    """Return inode and path of the segments that a process has mapped."""
    with contextlib.suppress(OSError):
        lines = maps.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        found = [match for line in lines if (match := _MAPPED.match(line))]
        return [(int(match["inode"]), match["path"]) for match in found if _is_in(match["path"], shm)]
    return []


def _is_in(path: str, shm: Path) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == str(shm) and is_segment(name.removesuffix(" (deleted)"))


def _foreign(path: Path, found: os.stat_result) -> HostError:
    return HostError(
        f"{path}, which ranks of this job share, was made by user id {found.st_uid} or is open to others: "
        "it must be removed first"
    )
