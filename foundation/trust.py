"""Files and folders that can be trusted: no other user could create them or can change them.

A daemon that runs as root must not be sent elsewhere by a link, and must not read what another user wrote.
So a path is opened folder by folder from ``/``, without following links, and every folder on the way is
looked at through the descriptor that is then used. Rules, for the effective user:

* A folder on the way belongs to root or to the user, and no other user may write to it; or it is sticky, as
  ``/tmp`` is: only its owner can rename or remove an entry of a sticky folder.
* A link on the way is followed if it belongs to root or to the user and is in a folder that no other user
  may write to. The last component is never a link.
* A folder to keep things in belongs to the user, and no other user may write to it.
* A file is a plain file of root's or of the user's own that no other user may write to. It is reached by its
  name in an open folder, and replaced as a whole (``foundation.files``).

The members of a group are others, but for the group that a user has to himself. Standard library only: the
guardian of an agent uses this package too.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import grp
import logging
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from foundation.errors import TrustError

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a folder and nothing else, not through a link (the kernel then says ``ENOTDIR``)."""
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40

_MOST_BYTES = 64 * 2**20

ROOT = 0
Owners = frozenset[int]
"""Ids of users who are trusted besides root and the effective user."""


def open_below(folder_fd: int, path: str) -> int:
    """Descriptor of the folder ``path`` below an open one, no component of it a link; the caller closes it.

    Owners are not looked at: for trees whose owner is known, such as a cgroup hierarchy.

    Raises
    ------
    OSError
        ``ENOENT`` if it is gone; ``ENOTDIR`` if a component is a link or no folder.
    """
    fd = os.dup(folder_fd)
    for part in path.split("/"):
        try:
            inner = os.open(part, DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def open_entry(folder_fd: int, name: str, flags: int, mode: int = 0) -> int:
    """Descriptor of the file ``name`` in an open folder; ``ELOOP`` if it is a link."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder_fd)


def open_folder(path: Path, *, own: bool = True) -> int:
    """Open a folder that may be believed; the caller closes the descriptor.

    Parameters
    ----------
    path
        The folder.
    own
        Whether it must belong to the user; else root's will do.

    Raises
    ------
    FileNotFoundError
        It is not there.
    TrustError
        Another user could have created it, or can change it; the message says who and where.
    OSError
        It cannot be opened.
    """
    path = _absolute(path)
    with folder_of(path) as parent:
        return _enter(parent, path, own=own)


def make_folder(path: Path, mode: int = 0o755) -> tuple[int, bool]:
    """Open a folder of the user's own, made where it is missing, with the folders above it.

    Returns
    -------
    tuple
        Its descriptor, which the caller closes, and whether it was made.

    Raises
    ------
    TrustError, OSError
        As ``open_folder``.
    """
    path = _absolute(path)
    with closing_fd(open_parent(path, make=True)) as parent:
        made = True
        try:
            os.mkdir(path.name, mode, dir_fd=parent)
        except FileExistsError:
            made = False
        return _enter(parent, path, own=True), made


def refuse_for_root(path: Path) -> None:
    """Refuse a folder that may not be believed, or the place of one that is to be made, for root alone.

    A plain user may share a folder with his colleagues, and answers for it; root answers for everybody.

    Raises
    ------
    TrustError
        See ``open_folder``.
    OSError
        It cannot be opened.
    """
    if os.geteuid() == ROOT:
        with contextlib.suppress(FileNotFoundError):
            os.close(open_folder(path))
            return
        os.close(open_parent(path))


def refuse_others(path: Path) -> None:
    """Refuse a folder that belongs to another user, and for root one that may not be believed.

    Raises
    ------
    TrustError
        It is another user's; or see ``open_folder``.
    OSError
        It cannot be opened.
    """
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise TrustError(f"{path} belongs to {user_name(owner)}, and you are {user_name(os.geteuid())}")
    refuse_for_root(path)


def behind_links(path: Path, also: Owners = frozenset()) -> Path:
    """Return the file that ``path`` leads to, where a site may keep it behind links of its own.

    Raises
    ------
    FileNotFoundError
        Something on the way is not there.
    TrustError
        A link belongs to another user, or is in a folder that others may write to.
    OSError
        There are too many links.
    """
    path = _absolute(path)
    for _ in range(_MOST_LINKS):
        with folder_of(path, also) as parent:
            try:
                target = _target(parent, path.name, os.fstat(parent), also)
            except NotADirectoryError:  # no link
                return path
        path = path.parent.joinpath(*reversed(target))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


@contextlib.contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    """Yield an open descriptor, and close it when the block ends."""
    try:
        yield fd
    finally:
        os.close(fd)


def folder_of(path: Path, also: Owners = frozenset()) -> contextlib.AbstractContextManager[int]:
    """Give a descriptor of the folder that contains ``path``; raises as ``open_parent``."""
    return closing_fd(open_parent(path, also=also))


def open_parent(path: Path, *, make: bool = False, also: Owners = frozenset()) -> int:
    """Open the folder that contains ``path``, each folder above it checked; raises as ``open_folder``.

    The descriptor is good for names below it, not for reading the folder. With ``make`` folders that are
    missing are made, for everybody to read; folders and links of the users ``also`` are believed, too.
    """
    path = _absolute(path)
    if path.name in ("", ".."):
        raise TrustError(f"{path} names no file or folder: name one")
    return _walk(list(path.parent.parts), path, make=make, also=also)


def names_in(folder_fd: int) -> list[str]:
    """Return the names of what an open folder holds, sorted."""
    with os.scandir(folder_fd) as entries:
        return sorted(entry.name for entry in entries)


def _absolute(path: Path) -> Path:
    return path if path.is_absolute() else Path.cwd() / path


def place_of(fd: int) -> str:
    """Return the path of what is open, for a message."""
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def _enter(parent: int, path: Path, *, own: bool) -> int:
    """Open the last component of a path: a folder to keep things in."""
    try:
        fd = os.open(path.name, DIRECTORY, dir_fd=parent)
    except NotADirectoryError as error:
        if stat.S_ISLNK(os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise TrustError(f"{path} is a link: name the folder that it leads to") from error
        raise
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() and (own or found.st_uid != ROOT):
            raise TrustError(f"{path} belongs to {user_name(found.st_uid)}: choose a folder of your own")
        if others_write(found):
            raise TrustError(f"others may write to {path}: `chmod go-w {path}`, or choose another folder")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _walk(parts: list[str], path: Path, *, make: bool, also: Owners) -> int:
    """Open folders one below the other from ``/`` on and check each; returns a descriptor of the last."""
    fd = os.open("/", _STEP)
    todo, links = parts[::-1], 0
    try:
        while True:
            here = os.fstat(fd)
            _check_passage(here, fd, path, also)
            if not todo:
                return fd
            name = todo.pop()
            try:
                inner = _step(fd, name, make=make)
            except NotADirectoryError:
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
                todo += _target(fd, name, here, also)  # an absolute one begins with "/" again
                continue
            os.close(fd)
            fd = inner
    except BaseException:
        os.close(fd)
        raise


def _step(fd: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _STEP, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=fd)
    return os.open(name, _STEP, dir_fd=fd)


def _target(fd: int, name: str, here: os.stat_result, also: Owners) -> list[str]:
    """Return where a link on the way leads, last component first; raises if it may not be followed."""
    found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
    if not is_known_owner(found, also) or others_write(here):
        who = user_name(found.st_uid)
        raise TrustError(f"{Path(place_of(fd), name)} is a link that {who} made: name the folder itself")
    return list(Path(os.readlink(name, dir_fd=fd)).parts)[::-1]


def _check_passage(found: os.stat_result, fd: int, path: Path, also: Owners) -> None:
    """Refuse a folder in which others can put something in the place of what is on the way."""
    if not is_known_owner(found, also):
        raise TrustError(
            f"{path} is in the hands of {user_name(found.st_uid)}, to whom {place_of(fd)} belongs: "
            "choose a folder of your own"
        )
    if others_write(found) and not found.st_mode & stat.S_ISVTX:
        raise TrustError(
            f"{path} is in the hands of everybody who may write to {place_of(fd)}: "
            f"`chmod go-w {place_of(fd)}`, or choose another folder"
        )


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
        # Without O_NONBLOCK a pipe that another user made would block the caller for ever.
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
        if not is_known_owner(found, also) or others_write(found):
            who = user_name(found.st_uid)
            raise TrustError(
                f"{place_of(fd)} belongs to {who}, or others may write to it: chmod go-w, or remove it"
            )
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_known_owner(found: os.stat_result, also: Owners = frozenset()) -> bool:
    """Whether a file or folder belongs to root, the user or one of ``also``."""
    return found.st_uid in (ROOT, os.geteuid()) or found.st_uid in also


def others_write(found: os.stat_result) -> bool:
    """Whether anybody but its owner may write to a file or folder; access control lists show in the group."""
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_own_group(found.st_gid)


def user_name(uid: int) -> str:
    """Return a user's name for a message, or the number of one without an account."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user id {uid}"


def _is_own_group(group: int) -> bool:
    """Whether a group is the one that a user has to himself, as many distributions make it; never root's."""
    me = os.geteuid()
    if me == ROOT:
        return False
    try:
        user, found = pwd.getpwuid(me), grp.getgrgid(group)
    except KeyError:
        return False
    alone = not set(found.gr_mem) - {user.pw_name}
    return user.pw_gid == group and found.gr_name == user.pw_name and alone


@functools.cache
def usable_cache(folder: Path) -> bool:
    """Whether compiled kernels may be kept in a folder, which is made where it is missing.

    Not in one that another user could have put there, or may write to: then a warning says so, once, and
    kernels are compiled anew each time.
    """
    try:
        fd, _ = make_folder(folder, 0o700)
    except TrustError as error:
        logging.getLogger(__name__).warning("kernels are compiled anew each time, for their cache: %s", error)
        return False
    except (OSError, RuntimeError):
        return False
    os.close(fd)
    return os.access(folder, os.W_OK)
