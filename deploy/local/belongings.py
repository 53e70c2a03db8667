"""What a cluster keeps, in its home and in a second folder.

What a cluster keeps in its home, by name, and how each of it is removed: that, and nothing else.

A name outside of these lists is never touched, whatever any file says. Folders are recognised by what the
kernel calls them (device and inode, noted when they were made), so another one at the same place stays.

A second folder for a cluster whose own path is too long for Unix sockets.

It is in a temporary folder, to which all users may write. So its name is random, it is made new, and it
is believed later only if it is the very folder that was made, still the user's own, and names its home.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, get_args

import msgspec

from foundation.errors import HostError, TrustError
from foundation.files import write_in
from foundation.trust import DIRECTORY, closing_fd, folder_of, names_in, open_folder, read_file

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
    with closing_fd(open_folder(path)) as fd:
        found = os.fstat(fd)
        write_in(fd, _HOME_FILE, os.fsencode(home))
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
        with closing_fd(open_folder(path)) as fd:
            found = os.fstat(fd)
            # Without an identity `up` was killed at this very folder: then there is nothing else in it.
            if short.identity not in (None, (found.st_dev, found.st_ino)):
                return True
            if set(names_in(fd)) <= {_HOME_FILE, f".{_HOME_FILE}.new"}:
                for name in names_in(fd):
                    os.unlink(name, dir_fd=fd)
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


FileName = Literal[
    "cluster.json",
    "compose.json",
    "supervisor.json",
    "slurm.conf",
    "cgroup.conf",
    "munge.key",
    "job-completions.log",
]
FolderName = Literal["log", "run", "spool", "slurmctld", "gang", "scratch"]
FILES: tuple[FileName, ...] = get_args(FileName)


@dataclass(frozen=True, slots=True)
class Content:
    """What a folder of ours holds: names that match a pattern; ``trees``: folders among them go, too."""

    patterns: tuple[str, ...]
    trees: bool = False


FOLDERS: dict[FolderName, Content] = {
    "log": Content(("*.log", "*.out")),
    "run": Content(("*.pid", "munge.sock", "munge.sock.lock", "munged.*")),
    "spool": Content(("?????-n*",), trees=True),
    "slurmctld": Content(("*",), trees=True),
    "gang": Content(("keys", "state", "record", "agents", "gangd.toml", "health-check*"), trees=True),
    "scratch": Content(("*",), trees=True),
}
SHORT: tuple[FolderName, ...] = ("run", "spool")
"""Those of which Unix sockets stand below, so that their path must be short."""


def remove_file(home_fd: int, name: str) -> bool:
    """Remove a file of ours, and what a kill left of writing it; False if a folder has its name."""
    for entry in (f".{name}.new", name):
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(entry, dir_fd=home_fd, follow_symlinks=False).st_mode):
                return False
            os.unlink(entry, dir_fd=home_fd)
    return True


def remove_folder(parent_fd: int, name: str, identity: tuple[int, int] | None, content: Content) -> bool:
    """Remove a folder of ours with what is ours in it; returns whether it is gone.

    Parameters
    ----------
    parent_fd, name
        Where it is.
    identity
        Device and inode of the folder that was made; None if that was never noted: then it was empty.
    content
        What in it is ours.
    """
    try:
        fd = os.open(name, DIRECTORY, dir_fd=parent_fd)
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False
    try:
        found = os.fstat(fd)
        if identity == (found.st_dev, found.st_ino):
            _remove_matching(fd, content)
        elif identity is not None or found.st_uid != os.geteuid():
            return False
    finally:
        os.close(fd)
    try:
        os.rmdir(name, dir_fd=parent_fd)
    except OSError:
        return False
    return True


def _remove_matching(fd: int, content: Content) -> None:
    for name in names_in(fd):
        if not any(fnmatchcase(name, pattern) for pattern in content.patterns):
            continue
        with suppress(OSError):  # what cannot be removed shows by the folder that stays
            if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=fd)
            elif content.trees:
                _remove_tree(fd, name)


def _remove_tree(parent_fd: int, name: str) -> None:
    """Remove a folder with all that is in it, links as links, and nothing of another file system.

    A job's user may have put folders into it, and may still be at it: every inner folder is first moved up
    into the outermost, where he cannot reach it, and taken from him. So no depth and no race leads elsewhere.
    """
    with closing_fd(os.open(name, DIRECTORY, dir_fd=parent_fd)) as fd:
        _take(fd)
        device, fresh = os.fstat(fd).st_dev, _names()
        while inner := names_in(fd):
            emptied = [_remove_inner(fd, entry, device, fresh) for entry in inner]
            if not any(emptied):
                return
    os.rmdir(name, dir_fd=parent_fd)


def _remove_inner(top_fd: int, name: str, device: int, fresh: Iterator[str]) -> bool:
    """Remove an entry of the outermost folder, its own folders moved up; False if it must stay."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=top_fd, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=top_fd)
        return True
    with closing_fd(os.open(name, DIRECTORY, dir_fd=top_fd)) as fd:
        if os.fstat(fd).st_dev != device:
            return False
        _take(fd)
        for entry in names_in(fd):
            if stat.S_ISDIR(os.stat(entry, dir_fd=fd, follow_symlinks=False).st_mode):
                with suppress(OSError):  # a mount point cannot be moved; its folder then stays
                    os.rename(entry, next(fresh), src_dir_fd=fd, dst_dir_fd=top_fd)
            else:
                os.unlink(entry, dir_fd=fd)
    try:
        os.rmdir(name, dir_fd=top_fd)
    except OSError:
        return False
    return True


def _take(fd: int) -> None:
    """Make a folder the user's own, and closed to others."""
    if os.fstat(fd).st_uid != os.geteuid():
        os.fchown(fd, os.geteuid(), -1)
    os.fchmod(fd, 0o700)


def _names() -> Iterator[str]:
    """Yield names that nothing in a folder has."""
    number = 0
    while True:
        number += 1
        yield f".removed-{os.getpid()}-{number}"
