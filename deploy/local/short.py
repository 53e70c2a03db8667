"""A second folder for a cluster whose own path is too long for Unix sockets.

It is in a temporary folder, to which all users may write. So its name is random, it is made new, and it
is believed later only if it is the very folder that was made, still the user's own, and names its home.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from foundation.errors import HostError, TrustError
from foundation.trust import folder_of, names_in, open_folder, read_file
from foundation.whole_file import write_in

# A Unix socket's path has at most 107 bytes, and slurmstepd appends a node, a job and a step to the spool.
LONGEST_PATH = 44
_PREFIX = "osub-"
_HOME_FILE = ".osub-home"
_PLACES = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108 - what is put there is private, and checked


class Short(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where it is and whose; device and inode once it is known to be there."""

    path: str
    home: str
    identity: tuple[int, int] | None = None


def make_short(home: Path, mode: int, known: Short | None, note: Callable[[Short], None]) -> None:
    """Make the second folder of ``home`` where it needs one and has none.

    Parameters
    ----------
    home
        Path of the home.
    mode
        Of the folder.
    known
        The one that it has.
    note
        Writes down what is about to be made, and what was made.

    Raises
    ------
    HostError
        No temporary folder will do.
    OSError
        It cannot be made.
    """
    plain = len(os.fsencode(home)) <= LONGEST_PATH and " " not in str(home)
    if known is not None or plain:
        return
    short = Short(str(_place() / f"{_PREFIX}{secrets.token_hex(8)}"), str(home))
    note(short)
    path = Path(short.path)
    path.mkdir(mode)  # fails if there is anything, a link too
    fd = open_folder(path)
    try:
        found = os.fstat(fd)
        write_in(fd, _HOME_FILE, os.fsencode(home))
    finally:
        os.close(fd)
    note(msgspec.structs.replace(short, identity=(found.st_dev, found.st_ino)))


def open_short(short: Short) -> int | None:
    """Return a descriptor of the folder that was made; None where it is gone, or another one is there."""
    try:
        fd = open_folder(Path(short.path))
    except (OSError, TrustError):
        return None
    found = os.fstat(fd)
    with suppress(OSError, TrustError):
        same = short.identity == (found.st_dev, found.st_ino)
        if same and read_file(fd, _HOME_FILE) == os.fsencode(short.home):
            return fd
    os.close(fd)
    return None


def remove_short(short: Short) -> bool:
    """Remove the folder if it is ours and nothing is left in it; returns whether none of ours is there."""
    path = Path(short.path)
    if not path.name.startswith(_PREFIX):
        return True
    with suppress(OSError, TrustError):
        fd = open_folder(path)
        try:
            found = os.fstat(fd)
            # Without an identity `up` was killed at this very folder: then there is nothing else in it.
            if short.identity not in (None, (found.st_dev, found.st_ino)):
                return True
            if set(names_in(fd)) <= {_HOME_FILE, f".{_HOME_FILE}.new"}:
                for name in names_in(fd):
                    os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)
        with folder_of(path) as parent:
            os.rmdir(path.name, dir_fd=parent)
    return open_short(short) is None


def _place() -> Path:
    """Return a temporary folder whose path is short and that may be believed."""
    for place in (tempfile.gettempdir(), *_PLACES):
        path = Path(place, f"{_PREFIX}{'0' * 16}")
        if len(os.fsencode(path)) > LONGEST_PATH or not os.access(place, os.W_OK | os.X_OK):
            continue
        with suppress(OSError, TrustError), folder_of(path):
            return Path(place)
    raise HostError(f"no folder for Unix sockets: {', '.join(_PLACES)} and TMPDIR will not do")
