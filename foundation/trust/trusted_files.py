"""Reading files by their name in an open folder, never through a link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from foundation.errors import TrustError
from foundation.trust.folders import folder_of, open_entry, place_of
from foundation.trust.owners import Owners, is_closed_to_others, user_name

_MOST_BYTES = 64 * 2**20


def read_file(folder_fd: int, name: str, most_bytes: int = _MOST_BYTES, also: Owners = frozenset()) -> bytes:
    """Return what a file in an open folder holds.

    Raises
    ------
    FileNotFoundError
        It is not there.
    TrustError
        It is a link, no plain file, larger than ``most_bytes``, another user's or writable by others.
    OSError
        It cannot be read.
    """
    fd = open_own(folder_fd, name, os.O_RDONLY, also=also)
    with os.fdopen(fd, "rb") as stream:
        content = stream.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise TrustError(f"{place_of(fd)} has more than {most_bytes} bytes: it is none of ours")
    return content


def read_trusted(path: Path, most_bytes: int = _MOST_BYTES, also: Owners = frozenset()) -> bytes:
    """Return what the file ``path`` holds, every folder above it checked; raises as ``read_file``."""
    with folder_of(path, also) as parent:
        return read_file(parent, path.name, most_bytes, also)


def open_own(folder_fd: int, name: str, flags: int, mode: int = 0o600, also: Owners = frozenset()) -> int:
    """Open a file in an open folder, such as a lock or a log; made with ``os.O_CREAT``.

    Raises
    ------
    TrustError
        It is a link, no plain file, another user's or writable by others.
    OSError
        It cannot be opened.
    """
    try:
        # Without O_NONBLOCK a pipe of somebody's making would hold the caller up for ever.
        fd = open_entry(folder_fd, name, flags | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        what = "a link" if error.errno == errno.ELOOP else "no plain file"
        raise TrustError(f"{Path(place_of(folder_fd), name)} is {what}: remove it") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise TrustError(f"{place_of(fd)} is no plain file: remove it")
        if not is_closed_to_others(found, also):
            who = user_name(found.st_uid)
            raise TrustError(f"{place_of(fd)} belongs to {who}, or others may write to it: remove it")
    except BaseException:
        os.close(fd)
        raise
    return fd
