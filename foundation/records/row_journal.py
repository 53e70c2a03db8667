"""Journals of typed rows, and of events, on top of the byte journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import msgspec
import polars as pl

from foundation.errors import InputError
from foundation.records.columns import ALLOCATIONS, JOBS, Row, RunTable
from foundation.records.journal import SYNC_EVERY_S, AppendFile, frame, good_length, read_frames
from foundation.records.record_checks import check_record
from foundation.records.row_types import AllocationRecord, JobRecord
from foundation.records.table_files import frame_of

_ROWS_A_PIECE = 50_000
T = TypeVar("T")


class EntryJournal(Generic[T]):
    """An append-only file of checked entries.

    Parameters
    ----------
    path
        The file; if it exists, a torn last entry is cut off and the others stay.
    sync_every_s
        Least time between two waits for the disk.

    Raises
    ------
    InputError
        The file exists and is damaged.
    OutputError
        The file cannot be opened.
    """

    def __init__(self, path: Path, *, sync_every_s: float = SYNC_EVERY_S) -> None:
        self._file = AppendFile(
            path, good_bytes=good_length(path) if path.exists() else None, sync_every_s=sync_every_s
        )
        self._encoder = msgspec.msgpack.Encoder()

    def append(self, *entries: T) -> None:
        """Append entries, all or none; when this returns a kill can no longer lose them.

        Raises
        ------
        InputError
            An entry breaks a rule.
        OutputError
            The disk is full or the file cannot be written.
        """
        checked = [self._checked(entry, str(self._file.path)) for entry in entries]
        self._file.append(b"".join(frame(self._encoder.encode(entry)) for entry in checked))

    def sync(self) -> None:
        """Wait until the disk has everything."""
        self._file.sync()

    def close(self) -> None:
        """Sync and close."""
        self._file.close()

    def _checked(self, entry: T, source: str) -> T:
        raise NotImplementedError


class RowJournal(EntryJournal[Row]):
    """Rows of one table."""

    def _checked(self, entry: Row, source: str) -> Row:
        return check_record(entry, source)


def read_rows(path: Path, table: RunTable) -> Iterator[Row]:
    """Yield the rows of a journal in the order of writing; none if there is no such file.

    Raises
    ------
    InputError
        The journal is damaged or its rows are not of ``table``.
    """
    decoder = msgspec.msgpack.Decoder(table.row)
    for _, payload in read_frames(path):
        try:
            yield decoder.decode(payload)
        except msgspec.DecodeError as error:
            raise InputError(f"{path} has a row that is not one of {table.name}: {error}") from error


def read_journal(path: Path, table: RunTable) -> pl.DataFrame:
    """Return the rows of a journal as a sorted frame."""
    return frame_in_pieces(read_rows(path, table), table)


def frame_in_pieces(rows: Iterable[Row], table: RunTable) -> pl.DataFrame:
    """Return rows as a sorted frame, made piece by piece so that few are objects at a time."""
    source = iter(rows)
    pieces: list[pl.DataFrame] = [frame_of([], table)]
    while piece := list(islice(source, _ROWS_A_PIECE)):
        pieces.append(frame_of(piece, table))
    return pl.concat(pieces).sort(table.sort, maintain_order=True)


def good_lines_length(path: Path) -> int:
    """Return the number of bytes up to the end of the last whole line."""
    try:
        return path.read_bytes().rfind(b"\n") + 1
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def read_events(path: Path) -> Iterator[dict[str, object]]:
    """Yield the events of a ``log.jsonl``; a torn last line is passed over.

    Raises
    ------
    InputError
        A whole line is not an event.
    """
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield msgspec.json.decode(line, type=dict[str, object])
                except msgspec.DecodeError as error:
                    raise InputError(f"{path} line {number} is not an event: {error}") from error
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


class JobEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A job's row and everything that it has held so far, in the order of time.

    ``allocations`` is None where an entry says nothing of them: those of the entry before stand. ``restarts``
    is how often the scheduler had started the job again.
    """

    job: JobRecord
    allocations: tuple[AllocationRecord, ...] | None = None
    restarts: Annotated[int, msgspec.Meta(ge=0)] = 0


class JobJournal(EntryJournal[JobEntry]):
    """Jobs; the last entry of a ``trace_job`` counts."""

    def _checked(self, entry: JobEntry, source: str) -> JobEntry:
        job = check_record(entry.job, source)
        if entry.allocations is None:
            return JobEntry(job, restarts=entry.restarts)
        allocations = tuple(check_record(held, source) for held in entry.allocations)
        if any(held.job != job.job_id for held in allocations):
            raise InputError(f"{source}: an allocation of trace_job {job.trace_job} is another job's")
        return JobEntry(job, allocations, entry.restarts)


def read_entries(path: Path) -> dict[int, JobEntry]:
    """Return what a journal says in the end of each job, by ``trace_job``; nothing if there is no such file.

    Raises
    ------
    InputError
        The journal is damaged, or holds something else than jobs.
    """
    entries: dict[int, JobEntry] = {}
    for entry in _every_entry(path):
        before = entries.get(entry.job.trace_job)
        if entry.allocations is None and before is not None:
            entry = JobEntry(entry.job, before.allocations, max(entry.restarts, before.restarts))
        entries[entry.job.trace_job] = entry
    return entries


def job_frames(path: Path) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Return the jobs and the allocations of a journal as tables; None where no job ever held anything."""
    entries = read_entries(path).values()
    held = [row for entry in entries for row in entry.allocations or ()]
    jobs = frame_in_pieces((entry.job for entry in entries), JOBS)
    return jobs, frame_in_pieces(held, ALLOCATIONS) if held else None


def _every_entry(path: Path) -> Iterator[JobEntry]:
    decoder = msgspec.msgpack.Decoder(JobEntry)
    for _, payload in read_frames(path):
        try:
            yield decoder.decode(payload)
        except msgspec.DecodeError as error:
            raise InputError(f"{path} has a row that is not one of jobs: {error}") from error
