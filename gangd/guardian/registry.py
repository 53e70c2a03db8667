"""Which folders of this host have agents' state files, so that whoever thaws need not be told.

An agent notes the folder of its state file before it holds anything. A note is a file whose content is the
path; the notes lie in a folder that only this user can write: ``/run/gangd/known`` for root, one in
``/dev/shm`` for others. Notes of folders that are gone are dropped when somebody looks. Standard library
only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from osub.errors import HostError, TrustError
from osub.in_memory import SHM
from osub.trust import make_folder, names_in, open_folder, read_file, write_file

_LONGEST_PATH = 4096


def registry_folder() -> Path:
    """Return where this user's notes are."""
    uid = os.geteuid()
    return Path("/run/gangd/known") if uid == 0 else SHM / f"gangd-{uid}-known"


def note_folder(folder: Path, registry: Path | None = None) -> None:
    """Note that ``folder`` has state files of this user's agents.

    Raises
    ------
    HostError
        The note cannot be made.
    """
    registry = registry or registry_folder()
    path = os.fsencode(folder.resolve())
    try:
        fd, _ = make_folder(registry, 0o700)
        try:
            with contextlib.suppress(FileExistsError):  # the agent of another node makes the same note
                write_file(fd, hashlib.sha256(path).hexdigest()[:16], path)
        finally:
            os.close(fd)
    except (OSError, TrustError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise HostError(f"cannot note the state folder in {registry}: {why}") from error


def noted_folders(registry: Path | None = None) -> tuple[Path, ...]:
    """Return the folders that were noted and are still there; notes of others are dropped."""
    registry = registry or registry_folder()
    try:
        fd = open_folder(registry)
    except (OSError, TrustError):
        return ()
    try:
        return tuple(folder for name in sorted(names_in(fd)) if (folder := _noted(fd, name)) is not None)
    finally:
        os.close(fd)


def forget_folder(folder: Path, registry: Path | None = None) -> None:
    """Drop the note of a folder that has no state file any more."""
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    with contextlib.suppress(OSError, TrustError):
        fd = open_folder(registry or registry_folder())
        try:
            os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)


def _noted(fd: int, name: str) -> Path | None:
    if name.startswith("."):
        return None  # a note that is being written
    try:
        folder = Path(os.fsdecode(read_file(fd, name, _LONGEST_PATH)))
    except (OSError, TrustError, ValueError):
        return None
    if folder.is_dir():
        return folder
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=fd)
    return None
