"""A cluster's home and its mark.

A cluster's home: a folder that `up` made or found empty, marked, and furnished with what is listed.

Only a home to which its user alone can write is believed (``foundation.trust``), and of that only the names
in ``belongings``: what is removed is listed in the mark *and* in this program.

The mark of a cluster's home: that the folder is ours, what in it is, and who works on it now.

One file, ``.osub-cluster``. Its being there says that `up` made the folder, or found it empty. Its content
lists what `up` put there, each entry *before* it is made, so that a killed `up` leaves nothing unlisted.
A lock on it keeps a second `up` or `down` away. It is the first that is made and the last that is removed.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from deploy.local.belongings import (
    FILES,
    FOLDERS,
    SHORT,
    FileName,
    FolderName,
    Short,
    make_short,
    open_short,
    remove_file,
    remove_folder,
    remove_short,
)
from deploy.local.layout import state_option
from foundation.errors import ClusterError, OutputError
from foundation.files import draft_in, write_in
from foundation.trust import (
    closing_fd,
    make_folder,
    names_in,
    open_below,
    open_entry,
    open_folder,
    open_own,
    place_of,
    read_file,
)

NAMES = (".osub-cluster", ".osub-cluster.new")
_NAME, _FRESH = NAMES
_MOST_MARK_BYTES = 1 << 20


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
    content = os.pread(lock_fd, _MOST_MARK_BYTES, 0)
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


_MOST_BYTES = 1 << 20


class Home:
    """The home of one cluster, open and locked; get one with ``take_home``.

    Attributes
    ----------
    path
        Its path, without links.
    """

    def __init__(self, fd: int, mark: FolderMark) -> None:
        self.path = Path(place_of(fd))
        self._fd = fd
        self._mark = mark

    @property
    def short(self) -> Path:
        """The folder with the short path: the home itself, or its stand-in."""
        short = self._mark.listed.short
        return Path(short.path) if short else self.path

    @property
    def is_furnished(self) -> bool:
        """Whether `up` has made anything here that was not removed."""
        return bool(self._mark.listed.files)

    @property
    def has_remains(self) -> bool:
        """Whether a folder of ours holds anything: after a failed `up`, or a `down` that kept logs."""
        return any(self.holds_any(made.name) for made in self._mark.listed.folders)

    @property
    def marked_s(self) -> float:
        """When the folder was marked, seconds since the epoch."""
        return self._mark.listed.marked_s

    def holds_any(self, name: FolderName) -> bool:
        """Whether a listed folder is there and not empty."""
        with suppress(OSError), self._holder(name) as fd:
            if fd is not None:
                with closing_fd(open_below(fd, name)) as inner:
                    return bool(names_in(inner))
        return False

    def read(self, name: FileName) -> bytes | None:
        """Return what a file of the home holds, None where it is not there; raises as ``read_file``."""
        try:
            return read_file(self._fd, name, _MOST_BYTES)
        except FileNotFoundError:
            return None

    def write(self, name: FileName, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file, whole or not at all; raises OutputError."""
        if name not in self._mark.listed.files:
            raise ValueError(f"{name} is not listed")
        try:
            write_in(self._fd, name, content.encode() if isinstance(content, str) else content, mode)
        except OSError as error:
            raise OutputError(f"cannot write {self.path / name}: {error.strerror}") from error

    def furnish(self, folders: Iterable[FolderName], mode: int) -> None:
        """List every file, and list and make these folders; what is there already is kept.

        Parameters
        ----------
        folders
            What to make.
        mode
            Of those that hold sockets; the others are for the user alone.

        Raises
        ------
        ClusterError
            Something that is not listed has one of the names, or is in the place of what is listed.
        OutputError
            They cannot be written.
        """
        listed = self._mark.listed
        wanted = {made.name: made for made in listed.folders}
        wanted |= {name: MadeFolder(name) for name in folders if name not in wanted}
        unknown = set(self._unlisted()) & {*wanted, *FILES}
        if unknown:
            raise ClusterError(
                f"{self.path} holds {', '.join(sorted(unknown))}, which `osub cluster up` did not make: "
                "not ours; move it away, or choose another --state"
            )
        try:
            if not wanted.keys().isdisjoint(SHORT):
                make_short(self.path, mode, listed.short, lambda short: self._mark.change(short=short))
            self._mark.change(files=FILES, folders=tuple(wanted.values()))
            self._mark.change(folders=tuple(self._make(made, mode) for made in wanted.values()))
        except OSError as error:
            raise OutputError(f"cannot write below {self.path}: {error.strerror}") from error

    def empty(self, keep: tuple[FolderName, ...] = ()) -> None:
        """Remove what is listed, but for the folders ``keep``, and shorten the list; safe to repeat."""
        listed = self._mark.listed
        for name in listed.files:  # first of all cluster.json: without it there is no cluster here
            remove_file(self._fd, name)
        for made in listed.folders:
            if made.name not in keep:
                with self._holder(made.name) as fd:
                    if fd is not None:
                        remove_folder(fd, made.name, made.identity, FOLDERS[made.name])
        short_is_gone = listed.short is None or remove_short(listed.short)
        left = set(self._left())
        with suppress(OSError):  # a full disk: the longer list does no harm
            self._mark.change(
                files=(),
                folders=tuple(made for made in listed.folders if made.name in left),
                short=None if short_is_gone else listed.short,
            )

    def leave(self) -> list[str]:
        """Remove the mark, and the home where `up` made it; where anything is left in it, return that.

        The mark then stays with it, so that another `up` may use the folder.
        """
        short = self._mark.listed.short
        left = self._left() + ([short.path] if short else [])
        if not left:
            self._mark.remove()
            if self._mark.listed.was_made:
                with suppress(OSError):
                    self.path.rmdir()
            return []
        return [inner for name in left for inner in self._named(name)]

    def close(self) -> None:
        """Let others work on it."""
        self._mark.close()
        os.close(self._fd)

    def _left(self) -> list[str]:
        return [name for name in names_in(self._fd) if name not in NAMES]

    def _named(self, name: str) -> list[str]:
        """Return the paths that a name in the home covers: of a folder of ours, what in it is not."""
        if name in FOLDERS:
            with suppress(OSError), closing_fd(open_below(self._fd, name)) as fd:
                return [f"{name}/{inner}" for inner in names_in(fd)] or [name]
        return [name]

    def _unlisted(self) -> list[str]:
        listed = self._mark.listed
        return [
            name for name in self._left() if name not in {*listed.files, *(m.name for m in listed.folders)}
        ]

    def _make(self, made: MadeFolder, mode: int) -> MadeFolder:
        """Make a listed folder where it is missing; returns it with its identity."""
        with self._holder(made.name) as fd:
            if fd is None:
                raise ClusterError(
                    f"{self.short} is gone: `osub cluster down {state_option(self.path)}` first"
                )
            fresh = True
            try:
                os.mkdir(made.name, mode if made.name in SHORT else 0o700, dir_fd=fd)
            except FileExistsError:
                fresh = made.identity is None
            found = os.stat(made.name, dir_fd=fd, follow_symlinks=False)
        identity = (found.st_dev, found.st_ino)
        if not (fresh or made.identity == identity) or not stat.S_ISDIR(found.st_mode):
            raise ClusterError(
                f"{made.name} of {self.path} is not the folder that `up` made: move it away, and run "
                f"`osub cluster down {state_option(self.path)}`"
            )
        return MadeFolder(made.name, identity)

    @contextmanager
    def _holder(self, name: FolderName) -> Iterator[int | None]:
        """Give the folder that contains a listed one; None where it is gone, or no longer ours."""
        short = self._mark.listed.short
        if name not in SHORT or short is None:
            yield self._fd
            return
        fd = open_short(short)
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)


@contextmanager
def take_home(path: Path, *, create: bool = False, mode: int = 0o700) -> Iterator[Home | None]:
    """Open and lock a cluster's home for one `up` or `down`.

    Parameters
    ----------
    path
        The folder.
    create
        Whether to make the folder, or to mark one that is empty; else None is given where there is no home.
    mode
        Of a folder that is made.

    Raises
    ------
    ClusterError
        Another `up` or `down` is under way; the folder is not empty and no home; it was moved.
    TrustError
        Others could have put the folder there, or can write to it.
    OutputError
        It cannot be made or opened.
    """
    home = _open_home(path, create=create, mode=mode)
    try:
        yield home
    finally:
        if home is not None:
            home.close()


def _open_home(path: Path, *, create: bool, mode: int) -> Home | None:
    fd, was_made = -1, False
    try:
        fd, was_made = make_folder(path, mode) if create else (open_folder(path), False)
        mark = take_mark(fd, create=create, was_made=was_made)
        if mark is not None:
            return Home(fd, mark)
    except BaseException as error:
        if was_made:
            with suppress(OSError):
                path.rmdir()
        if fd >= 0:
            os.close(fd)
        if isinstance(error, FileNotFoundError) and not create:
            return None
        if isinstance(error, OSError):
            raise OutputError(f"cannot use {path} for a cluster: {error.strerror}") from error
        raise
    os.close(fd)
    return None
