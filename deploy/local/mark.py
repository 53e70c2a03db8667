"""The mark of a cluster's home: that the folder is ours, what in it is, and who works on it now.

One file, ``.osub-cluster``. Its being there says that `up` made the folder, or found it empty. Its content
lists what `up` put there, each entry *before* it is made, so that a killed `up` leaves nothing unlisted.
A lock on it keeps a second `up` or `down` away. It is the first that is made and the last that is removed.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack, suppress
from typing import Any, Literal

import msgspec

from deploy.local.belongings import FileName, FolderName
from deploy.local.short import Short
from foundation.errors import ClusterError
from foundation.trust import names_in, open_entry, open_own, place_of
from foundation.whole_file import draft_in

NAMES = (".osub-cluster", ".osub-cluster.new")
_NAME, _FRESH = NAMES
_MOST_BYTES = 1 << 20


class MadeFolder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder that was or is about to be made: its name; device and inode once it is known to be there."""

    name: FolderName
    identity: tuple[int, int] | None = None


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the mark says.

    Attributes
    ----------
    path
        Where the home was when it was marked.
    was_made
        Whether `up` made it; else it was there, empty.
    marked_s
        When it was marked, seconds since the epoch.
    files, folders
        What is ours in it.
    short
        A second folder for what needs a short path; None where the home's own is short.
    """

    version: Literal[1] = 1
    path: str
    was_made: bool
    marked_s: float
    files: tuple[FileName, ...] = ()
    folders: tuple[MadeFolder, ...] = ()
    short: Short | None = None


class FolderMark:
    """The locked mark of an open folder; get one with ``take_mark``."""

    def __init__(self, folder_fd: int, lock_fd: int, listed: Listed) -> None:
        self.listed = listed
        self._folder_fd = folder_fd
        self._lock_fd = lock_fd

    def change(self, **changes: Any) -> None:
        """Write it anew, whole or not at all; the lock is on the new file before that has the name.

        Raises OSError; the mark is then as it was.
        """
        listed = msgspec.structs.replace(self.listed, **changes)
        with ExitStack() as undo:
            with draft_in(self._folder_fd, _NAME, draft=_FRESH, lasting=False) as draft:
                fd = os.dup(draft)  # the lock is on the open file, whatever its descriptors
                undo.callback(os.close, fd)
                fcntl.flock(fd, fcntl.LOCK_EX)
                os.write(fd, msgspec.json.encode(listed))
            undo.pop_all()
        os.close(self._lock_fd)
        self._lock_fd, self.listed = fd, listed

    def remove(self) -> None:
        """Remove it; the lock lasts until ``close``."""
        for name in (_FRESH, _NAME):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder_fd)

    def close(self) -> None:
        """Let others have the lock."""
        os.close(self._lock_fd)


def take_mark(folder_fd: int, *, create: bool, was_made: bool) -> FolderMark | None:
    """Lock the mark of an open folder.

    Parameters
    ----------
    folder_fd
        The folder.
    create
        Whether to mark a folder that is empty.
    was_made
        Whether the folder was made just now.

    Returns
    -------
    Mark or None
        None where there is none, and none was to be made.

    Raises
    ------
    ClusterError
        Another process holds the lock; the folder is not empty and has no mark; it was moved since.
    TrustError, OSError
        The mark is not ours, or cannot be written.
    """
    while True:
        try:
            lock_fd, fresh = open_own(folder_fd, _NAME, os.O_RDWR), False
        except FileNotFoundError:
            if not create:
                return None
            _refuse_strangers(folder_fd)
            try:
                lock_fd = open_entry(folder_fd, _NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue
            fresh = True
        try:
            if _lock(folder_fd, lock_fd):
                return _read(folder_fd, lock_fd, was_made=was_made and fresh)
        except BaseException:
            os.close(lock_fd)
            raise
        os.close(lock_fd)


def _refuse_strangers(folder_fd: int) -> None:
    found = names_in(folder_fd)
    if found:
        more = " ..." if len(found) > 3 else ""
        raise ClusterError(
            f"{place_of(folder_fd)} holds {', '.join(found[:3])}{more} and was not made by "
            "`osub cluster up`: not ours; choose another --state, or an empty folder"
        )


def _lock(folder_fd: int, lock_fd: int) -> bool:
    """Lock the open file; False if by then it is the mark no more."""
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        where = place_of(folder_fd)
        raise ClusterError(f"another `osub cluster` works on {where}; wait for it to end") from error
    try:
        named = os.stat(_NAME, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(lock_fd))


def _read(folder_fd: int, lock_fd: int, *, was_made: bool) -> FolderMark:
    where = place_of(folder_fd)
    content = os.pread(lock_fd, _MOST_BYTES, 0)
    if not content:  # its maker was killed before he wrote anything into it, and so before he made anything
        mark = FolderMark(folder_fd, lock_fd, Listed(path=where, was_made=was_made, marked_s=time.time()))
        try:
            mark.change()
        except OSError:
            mark.remove()
            raise
        return mark
    try:
        listed = msgspec.json.decode(content, type=Listed)
    except msgspec.MsgspecError as error:
        raise ClusterError(
            f"{where}/{_NAME} is no list of what `up` made ({error}); was it edited?"
        ) from error
    if listed.path != where:
        raise ClusterError(f"the cluster in {where} was made in {listed.path}: move it back there first")
    return FolderMark(folder_fd, lock_fd, listed)
