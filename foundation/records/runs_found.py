"""Finding RUNs below a folder, and removing one: that, and nothing that no run made."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import InputError, OutputError
from foundation.records.columns import TABLES
from foundation.records.journal import output_error
from foundation.records.records_folder import INFO_NAME, LOG_NAME, FolderLock, is_finished, read_info
from foundation.records.run_info import RunInfo
from foundation.records.trace_copy import TRACE_NAME
from foundation.trust import refuse_others

MOST_DEEP = 4
"""Folders below the first that are looked into."""
JOBS_FOLDER, APPS_NAME, APART_NAME = "jobs", "apps.csv", "pairing.json"
"""What a replay keeps in its RUN besides the records."""
_KNOWN = frozenset(
    {
        INFO_NAME,
        LOG_NAME,
        TRACE_NAME,
        APPS_NAME,
        APART_NAME,
        *(table.file_name for table in TABLES),
        *(f"{table.name}.journal" for table in TABLES),
    }
)


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A RUN on disk.

    Attributes
    ----------
    path
        The folder.
    info
        What its ``run.json`` says; None where it cannot be read.
    fault
        Why it cannot; None where it can.
    is_finished
        Whether it is.
    size_bytes
        Of all of its files.
    """

    path: Path
    info: RunInfo | None
    fault: str | None
    is_finished: bool
    size_bytes: int


def find_runs(folder: Path, most_deep: int = MOST_DEEP) -> Iterator[FoundRun]:
    """Yield the RUNs in a folder and below it, by name; links are not followed, nor folders without access.

    Raises
    ------
    InputError
        The folder cannot be read.
    """
    if (folder / INFO_NAME).is_file():
        yield _found(folder)
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"cannot look for runs in {folder}: {error.strerror}; name a folder") from error
    for entry in entries:
        if most_deep > 0 and entry.is_dir(follow_symlinks=False):
            with suppress(InputError):
                yield from find_runs(Path(entry.path), most_deep - 1)


def _found(path: Path) -> FoundRun:
    info, fault = None, None
    try:
        info = read_info(path)
    except InputError as error:
        fault = str(error)
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - as os.walk gives them
    return FoundRun(path, info, fault, is_finished(path), size)


def remove_run(path: Path, *, unfinished: bool = False) -> list[str]:
    """Remove a RUN, and return the names of files in its folder that no run made, which stay.

    Parameters
    ----------
    path
        The RUN; not a link to one.
    unfinished
        Whether to remove one that is not finished, whose jobs may still run.

    Raises
    ------
    InputError
        It is no RUN.
    OutputError
        It is not finished, another process writes it, or it cannot be removed.
    TrustError
        It is another user's.
    """
    lock = _locked_to_remove(path, unfinished=unfinished)
    try:
        return _emptied(path)
    except OSError as error:
        raise output_error("remove", path, error) from error
    finally:
        lock.release()


def refuse_to_replace(path: Path, *, force: bool) -> None:
    """Refuse to write a RUN where another one is and may not be replaced; nothing is removed.

    Parameters
    ----------
    path
        Where it is to be written.
    force
        Whether a RUN that is there may be replaced.

    Raises
    ------
    OutputError
        A RUN is there, and ``force`` is not given or ``remove_run`` would refuse it.
    TrustError
        It is another user's.
    """
    if not force and (path / INFO_NAME).exists():
        raise OutputError(f"{path} exists already: choose another folder, or add --force to replace the run")
    if (path / INFO_NAME).is_file():
        refuse_to_remove(path)


def refuse_to_remove(path: Path, *, unfinished: bool = False) -> None:
    """Raise what ``remove_run`` would raise before it removes anything; nothing is removed."""
    _locked_to_remove(path, unfinished=unfinished).release()


def _locked_to_remove(path: Path, *, unfinished: bool) -> FolderLock:
    if path.is_symlink():
        raise InputError(f"{path} is a link; name the RUN itself")
    if not (path / INFO_NAME).is_file():
        raise InputError(f"{path} is not a RUN folder: it has no {INFO_NAME}")
    refuse_others(path)
    lock = FolderLock(path)
    if not is_finished(path) and not unfinished:
        lock.release()
        raise OutputError(
            f"{path} is not finished: `osub replay ... --resume` goes on with it; --force removes it, "
            "and its jobs go on without a record"
        )
    return lock


def _emptied(path: Path) -> list[str]:
    # run.json goes last: what a kill leaves is still seen as a RUN, and removed by another try.
    names = sorted(os.listdir(path), key=lambda name: (name == INFO_NAME, name))  # noqa: PTH208 - names
    left = []
    for name in names:
        entry = path / name
        known = name in _KNOWN or (
            name.startswith(".") and name.endswith(".partial") and name[1:-8] in _KNOWN
        )
        mode = os.lstat(entry).st_mode
        if known and not stat.S_ISDIR(mode):
            entry.unlink()
        elif name == JOBS_FOLDER and stat.S_ISDIR(mode):
            shutil.rmtree(entry)  # safe against links put in its way
        else:
            left.append(name)
    if not left:
        path.rmdir()
    return left
