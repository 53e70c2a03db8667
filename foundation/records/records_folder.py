"""RUN folders: what is in one, which there are below a folder, and how one is removed.

The RUN folder: its files, made whole or not at all, written by one process at a time.

Finding RUNs below a folder, and removing one: that, and nothing that no run made.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from foundation.errors import InputError, OutputError
from foundation.files import draft_at
from foundation.records.columns import JOBS, TABLES, RunTable
from foundation.records.journal import TRACE_NAME, copy_trace, output_error
from foundation.records.row_types import SCHEMA_VERSION, RunInfo
from foundation.trust import refuse_for_root, refuse_others

INFO_NAME = "run.json"
LOG_NAME = "log.jsonl"
MOST_NAMED = 8


def journal_path(folder: Path, table: RunTable) -> Path:
    """Return where the rows of ``table`` wait while the run goes on."""
    return folder / f"{table.name}.journal"


def is_finished(folder: Path) -> bool:
    """Return whether the run in ``folder`` is finished: its jobs are a table and no longer a journal."""
    return (folder / JOBS.file_name).exists()


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder next to ``path``; it becomes ``path`` if all went well, else nothing is left.

    Raises
    ------
    OutputError
        ``path`` holds something already or cannot be made.
    TrustError
        Root was to make it where another user may write.
    """
    refuse_existing(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_for_root(path)
        made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
    except OSError as error:
        raise output_error("create", path, error) from error
    try:
        made.chmod(0o755)
        yield made
        made.rename(path)
    except (InputError, OutputError) as error:
        raise type(error)(str(error).replace(str(made), str(path))) from error
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            refuse_existing(path)
        raise output_error("create", path, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def refuse_existing(path: Path) -> None:
    """Fail if ``path`` is anything but absent or an empty folder."""
    if (path / INFO_NAME).exists():
        raise OutputError(
            f"{path} already holds a run; --resume goes on with one, --force replaces a finished "
            "one; or choose another folder"
        )
    if path.is_dir():
        if any(path.iterdir()):
            raise OutputError(f"{path} is a folder with other files in it; choose another folder")
    elif path.exists() or path.is_symlink():
        raise OutputError(f"{path} is not a folder; choose another name")


def write_start(folder: Path, info: RunInfo, trace: Path) -> RunInfo:
    """Write the trace and ``run.json``, and return ``info`` with the trace's hash in it."""
    digest = copy_trace(trace, folder)
    if info.trace_sha256 not in (None, digest):
        raise InputError(f"trace {trace} is not the one that the run is about: its SHA-256 is {digest}")
    info = msgspec.structs.replace(info, trace_sha256=digest)
    write_info(folder, info)
    return info


def write_info(folder: Path, info: RunInfo) -> None:
    """Write ``run.json`` whole or not at all."""
    path = folder / INFO_NAME
    try:
        data = msgspec.json.format(msgspec.json.encode(check_info(info, str(path))), indent=2)
        with draft_at(path, draft=f".{path.name}.partial") as partial:
            partial.write_bytes(data + b"\n")
    except OSError as error:
        raise output_error("write", path, error) from error


def check_info(info: RunInfo, source: str) -> RunInfo:
    """Return ``info`` with exact types.

    Raises
    ------
    InputError
        A value has the wrong type or is out of range, or the settings contradict each other.
    """
    try:
        info = msgspec.convert(msgspec.to_builtins(info), RunInfo)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(f"{source}: {error}") from error
    if info.queues == "mq" and info.interactive_nodes is None:
        raise InputError(f"{source}: queues is mq, but interactive_nodes is null")
    return info


def read_info(folder: Path) -> RunInfo:
    """Read ``run.json``.

    Raises
    ------
    InputError
        ``folder`` is not a RUN, or the file is not valid; the message says where.
    """
    path = folder / INFO_NAME
    if not folder.is_dir():
        what = "it is a file" if folder.exists() else "there is no such folder"
        raise InputError(f"{folder} is not a RUN folder: {what}")
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{folder}: the name is no text (UTF-8); rename the folder") from error
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        inside = sorted(str(one.parent) for one in folder.glob(f"*/{INFO_NAME}"))[:MOST_NAMED]
        hint = f"; RUNs in it: {', '.join(inside)}" if inside else ""
        raise InputError(f"{folder} is not a RUN folder: it has no {INFO_NAME}{hint}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    try:
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version != SCHEMA_VERSION:
            raise InputError(
                f"{path} has schema version {version} and this osub reads version {SCHEMA_VERSION};"
                " use the osub that wrote it"
            )
        info = msgspec.json.decode(data, type=RunInfo)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a valid run description: {error}") from error
    return check_info(info, str(path))


class _Versioned(msgspec.Struct):
    schema_version: int


class FolderLock:
    """Keeps a second process from writing in a folder; the kernel releases it when the holder dies."""

    def __init__(self, folder: Path) -> None:
        try:
            self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise output_error("open", folder, error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise OutputError(f"another process is writing {folder}; wait for it or end it") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let others write; twice is allowed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


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
