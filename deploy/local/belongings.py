"""What a cluster keeps in its home, by name, and how each of it is removed: that, and nothing else.

A name outside of these lists is never touched, whatever any file says. Folders are recognised by what the
kernel calls them (device and inode, noted when they were made), so another one at the same place stays.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

from foundation.trust import DIRECTORY, names_in

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
    fd = os.open(name, DIRECTORY, dir_fd=parent_fd)
    try:
        _take(fd)
        device, fresh = os.fstat(fd).st_dev, _names()
        while inner := names_in(fd):
            emptied = [_remove_inner(fd, entry, device, fresh) for entry in inner]
            if not any(emptied):
                return
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=parent_fd)


def _remove_inner(top_fd: int, name: str, device: int, fresh: Iterator[str]) -> bool:
    """Remove an entry of the outermost folder, its own folders moved up; False if it must stay."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=top_fd, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=top_fd)
        return True
    fd = os.open(name, DIRECTORY, dir_fd=top_fd)
    try:
        if os.fstat(fd).st_dev != device:
            return False
        _take(fd)
        for entry in names_in(fd):
            if stat.S_ISDIR(os.stat(entry, dir_fd=fd, follow_symlinks=False).st_mode):
                with suppress(OSError):  # a mount point cannot be moved; its folder then stays
                    os.rename(entry, next(fresh), src_dir_fd=fd, dst_dir_fd=top_fd)
            else:
                os.unlink(entry, dir_fd=fd)
    finally:
        os.close(fd)
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
