"""Where agents' state files are.

Path of an agent's state file: in the folder that the site names, but in memory.

The switch thread stores into the mapped file, and must not wait for a disk (``foundation.files``): where
the folder is on one, the file is kept in a stand-in, a folder of this user alone.

Which folders of this host have agents' state files, so that a thaw finds them without an argument.

An agent notes the folder of its state file before it holds anything. A note is a file whose content is the
path; the notes lie in a folder that only this user can write: ``/run/gangd/known`` for root, one in
``/dev/shm`` for others, by an unguessable name where another user has taken the usual one. Notes of
folders that are gone are dropped at the next look. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from foundation.errors import HostError, TrustError
from foundation.files import MOUNTS, SHM, live_folder, stand_in, write_in
from foundation.trust import closing_fd, make_folder, names_in, open_folder, read_file

STATE_DIR = Path("/run/gangd")
"""Folder of an agent's state file unless the site says otherwise."""


def state_path(folder: Path, node: str, mounts: Path = MOUNTS) -> Path:
    """Path of the state file of the agent of ``node`` that was given ``folder``."""
    return live_folder(folder, mounts) / f"agent-{node}.state"


def ended_path(folder: Path, node: str) -> Path:
    """Path of the record of how the last agent of ``node`` ended: in the site's folder, which outlasts it."""
    return folder.resolve() / f"agent-{node}.ended"


def ledger_folders(folder: Path) -> tuple[Path, ...]:
    """Return every folder in which an agent that was given ``folder`` may have kept its state file.

    Which of them it was depends on what stood in ``/dev/shm`` when the agent began.
    """
    return tuple(dict.fromkeys((stand_in(folder), folder.resolve())))


def all_stand_ins() -> tuple[Path, ...]:
    """Return the stand-ins of all folders of this user; what others put next to them is left out."""
    found = []
    for path in sorted(SHM.glob(f"gangd-{os.geteuid()}-*")):
        with contextlib.suppress(OSError):
            entry = path.lstat()
            if stat.S_ISDIR(entry.st_mode) and entry.st_uid == os.geteuid():
                found.append(path)
    return tuple(found)


def make_private(folder: Path) -> None:
    """Make a folder for this user alone, or make sure that it is one.

    Raises
    ------
    HostError
        It cannot be made, or it belongs to another user, or others may write to it.
    """
    try:
        fd, _ = make_folder(folder, 0o700)
    except (OSError, TrustError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise HostError(f"no folder of this user alone at {folder}: {why}; choose another --state") from error
    os.close(fd)


def discard(path: Path, fd: int) -> None:
    """Remove the state file ``path`` if it is the one that ``fd`` has open, and an empty stand-in folder.

    Called when nothing that the file records is frozen any more; a later agent's file is left alone.
    """
    with contextlib.suppress(OSError):
        here, ours = path.stat(follow_symlinks=False), os.fstat(fd)
        if (here.st_dev, here.st_ino) == (ours.st_dev, ours.st_ino):
            path.unlink()
        if path.parent.parent == SHM:
            path.parent.rmdir()  # fails while agents of other nodes use it


_LONGEST_PATH = 4096


def registry_folders(shm: Path = SHM) -> tuple[Path, ...]:
    """Return the folders that have this user's notes, or would: the usual one, and others of his own."""
    uid = os.geteuid()
    if uid == 0:
        return (Path("/run/gangd/known"),)
    usual = shm / f"gangd-{uid}-known"
    found = []
    with contextlib.suppress(OSError), os.scandir(shm) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if (
                    entry.name.startswith(f"{usual.name}-")
                    and entry.stat(follow_symlinks=False).st_uid == uid
                ):
                    found.append(Path(entry.path))
    return (usual, *sorted(found))


def note_folder(folder: Path, registries: Sequence[Path] | None = None) -> None:
    """Note that ``folder`` has state files of this user's agents.

    Parameters
    ----------
    folder
        The folder.
    registries
        Where to note it: the first that is this user's own, else a new one next to the first. By default
        ``registry_folders()``.

    Raises
    ------
    HostError
        The note cannot be made.
    """
    tried = list(registry_folders() if registries is None else registries)
    tried.append(tried[0].with_name(f"{tried[0].name}-{secrets.token_hex(8)}"))
    path = os.fsencode(folder.resolve())
    refusals = []
    for registry in tried:
        try:
            _note(path, registry)
        except (OSError, TrustError) as error:
            refusals.append(error.strerror or "" if isinstance(error, OSError) else str(error))
        else:
            return
    raise HostError(f"cannot note the state folder in {tried[0]}: {refusals[0]}")


def _note(path: bytes, registry: Path) -> None:
    # The agent of another node makes the same note.
    with closing_fd(make_folder(registry, 0o700)[0]) as fd, contextlib.suppress(FileExistsError):
        write_in(fd, hashlib.sha256(path).hexdigest()[:16], path)


def noted_folders(registries: Sequence[Path] | None = None) -> tuple[Path, ...]:
    """Return the folders that were noted and are still there; notes of others are dropped."""
    found: dict[Path, None] = {}
    for registry in registry_folders() if registries is None else registries:
        with contextlib.suppress(OSError, TrustError), closing_fd(open_folder(registry)) as fd:
            for name in sorted(names_in(fd)):
                folder = _noted(fd, name)
                if folder is not None:
                    found[folder] = None
    return tuple(found)


def forget_folder(folder: Path, registries: Sequence[Path] | None = None) -> None:
    """Drop the note of a folder that has no state file any more."""
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    for registry in registry_folders() if registries is None else registries:
        with contextlib.suppress(OSError, TrustError), closing_fd(open_folder(registry)) as fd:
            os.unlink(name, dir_fd=fd)


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
