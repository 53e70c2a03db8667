"""Files of ours: written whole or not at all, kept in memory, and whether one could be written.

Files that are written whole or not at all: the one way in which a file is replaced.

A draft next to the file gets the file's name once all of it is written, and on the disk. A reader sees
the old file or the whole new one; after an error or a kill it is the old one. The variants:

================  =================================================================================
``draft_in``      in an open folder, by descriptor: for who locks or maps what he writes
``draft_at``      at a path, by name: for who hands the name to a library
``write_in``      bytes in an open folder of a daemon's own, with a mode that no umask changes
``write_whole``   text at a place that a user named; what is no plain file is written to, not replaced
``write_pieces``  bytes of which only a piece is in memory, packed if the name says so
================  =================================================================================

A draft at a path has a name that cannot be predicted, as others may write to its folder, too; no link of
theirs is followed. In a folder of our own it has a name that is known, so that what a kill has left is
replaced.

Standard library only: the guardian of an agent uses this, too.

The folder in memory that replaces one on disk, for files that must never wait for a disk.

On a disk file system a store into a mapped file can wait for a journal, for milliseconds; on tmpfs it can't.
The stand-in is in ``/dev/shm``, its name made from the user and the folder's path, so a reader can find
the files without a message that names it. All users may write to ``/dev/shm``: another user who knows the
path can take the name first. Then the folder on disk itself is used, which is slower and as safe.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from foundation.errors import OutputError
from foundation.trust import closing_fd

if TYPE_CHECKING:
    import tarfile

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
    """Whether something of another user has the name."""
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


_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def draft_in(
    folder_fd: int, name: str, mode: int = 0o600, *, draft: str | None = None, lasting: bool = True
) -> Iterator[int]:
    """Yield the descriptor of a draft that becomes the file ``name`` of an open folder when the block ends.

    Parameters
    ----------
    folder_fd, name
        The folder, to which no other user may write, and the file.
    mode
        Its rights, whatever the umask says.
    draft
        The draft's name; ``.NAME.new`` if None. What has it is removed before.
    lasting
        Whether it has to be on the disk before it gets its name: what is of no use after a fall of the power
        need not.

    Raises
    ------
    OSError
        It cannot be written; what was there before stays.
    """
    fresh = draft or f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=folder_fd)
    fd = os.open(fresh, os.O_RDWR | _NEW, mode, dir_fd=folder_fd)
    with closing_fd(fd), _taking_place(fresh, name, folder_fd):
        os.fchmod(fd, mode)
        yield fd
        if lasting:
            os.fsync(fd)


@contextlib.contextmanager
def draft_at(path: Path, *, draft: str | None = None) -> Iterator[Path]:
    """Yield where to write a draft that becomes ``path`` when the block ends; nothing is there yet.

    Parameters
    ----------
    path
        The file.
    draft
        The draft's name in the same folder, for a folder of our own: what has it is removed before. None: a
        name that no user can predict.

    Raises
    ------
    OSError
        It cannot be written; what was there before stays.
    """
    fresh = path.with_name(draft or f".{path.name}.{secrets.token_hex(6)}.partial")
    if draft is not None:
        fresh.unlink(missing_ok=True)
    with _taking_place(str(fresh), str(path), None):
        yield fresh
        with closing_fd(os.open(fresh, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as fd:
            os.fsync(fd)


def write_in(folder_fd: int, name: str, content: bytes, mode: int = 0o600) -> None:
    """Make a file in an open folder of the user's own hold ``content``; not meant to outlast a power failure.

    What a kill leaves behind has the name ``.NAME.new``. Raises OSError.
    """
    with draft_in(folder_fd, name, mode, lasting=False) as fd, open(fd, "wb", closefd=False) as stream:
        stream.write(content)


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Make ``path`` hold ``text``; what is no plain file, such as ``/dev/null``, is written to.

    Raises
    ------
    OutputError
        The file cannot be written; what was there before stays.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as device:
                device.write(text)
            return
        with draft_at(path) as draft:
            descriptor = os.open(draft, os.O_WRONLY | _NEW, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def write_pieces(path: Path, pieces: Iterable[bytes], *, packed: bool | None = None) -> None:
    """Make ``path`` hold the pieces one after another, of which only one is in memory.

    An error while the pieces are made leaves the earlier file.

    Parameters
    ----------
    path, pieces
        The file, and what it is to hold.
    packed
        Whether to write gzip, without name and time: the same pieces, the same bytes. None: if the name ends
        in ``.gz``.

    Raises
    ------
    OutputError
        The file cannot be written, or is no plain file: root would put one in the place of a device.
    """
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is not a regular file; give the name of a file")
    try:
        with draft_at(path) as draft, draft.open("xb") as stream:
            if path.suffix == ".gz" if packed is None else packed:
                import gzip  # few write it, and daemons start without it

                with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as target:
                    target.writelines(pieces)
            else:
                stream.writelines(pieces)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def _taking_place(fresh: str, name: str, folder_fd: int | None) -> Iterator[None]:
    """Give a draft the name of its file when the block ends, or remove it."""
    try:
        yield
        os.rename(fresh, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh, dir_fd=folder_fd)
        raise


def refuse_unwritable(path: Path) -> None:
    """Fail if no file, or no new folder, could take its place at ``path``; folders that miss may be made.

    What is neither a plain file nor a folder, such as ``/dev/null``, is written to where it is.

    Raises
    ------
    OutputError
        The folder that it would be in, or the last one on the way that exists, may not be written to; or
        there is none.
    """
    try:
        kind = path.stat().st_mode
    except OSError:
        kind = stat.S_IFREG
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
        refuse_unwritable_folder(path.absolute().parent, path)
    elif not os.access(path, os.W_OK):
        raise OutputError(f"cannot write {path}: you may not write to it")


def refuse_unwritable_folder(folder: Path, wanted: Path | None = None) -> None:
    """Fail if nothing could be written in ``folder``, or if it could not be made.

    Parameters
    ----------
    folder
        The folder.
    wanted
        What is to be written, for the message; None: the folder itself.

    Raises
    ------
    OutputError
        It, or the last folder on the way that exists, may not be written to; or there is none.
    """
    what = folder if wanted is None else wanted
    try:
        str(what).encode()
    except UnicodeEncodeError as error:
        raise OutputError(f"cannot write {what}: the name is no text (UTF-8); choose another one") from error
    whole = folder.absolute()
    for place in (whole, *whole.parents):
        if place.is_dir():
            if not os.access(place, os.W_OK | os.X_OK):
                is_read_only = os.statvfs(place).f_flag & os.ST_RDONLY
                why = "is on a read-only file system" if is_read_only else "may not be written to"
                raise OutputError(f"cannot write {what}: {place} {why}; choose another place")
            return
        if os.path.lexists(place):
            kind = "a link that leads nowhere" if place.is_symlink() else "no folder"
            raise OutputError(f"cannot write {what}: {place} is {kind}")


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract an archive that is not trusted into ``folder``, which nothing of it can leave.

    Python has a filter for that since 3.11.4; Debian 12 has 3.11.2, where links are left out.

    Raises
    ------
    tarfile.TarError
        An entry is no file, folder or link, or lies outside; what came before it is extracted.
    OSError
        It cannot be written.
    """
    import tarfile

    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:
        archive.extractall(folder, members=_plain_entries(archive))  # noqa: S202


def _plain_entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    import tarfile

    for entry in archive:
        if entry.issym() or entry.islnk():
            continue
        path = Path(entry.name)
        if path.is_absolute() or ".." in path.parts or not (entry.isfile() or entry.isdir()):
            raise tarfile.ReadError(f"{entry.name!r} is no file or folder of the archive's own")
        entry.mode &= 0o755
        yield entry
