"""Typed rows on disk: tables in Parquet, and journals.

Tables on disk: rows to frames, frames to Parquet files of reproducible bytes, and back.

Journals of typed rows, and of events, on top of the byte journal.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from polars.io.plugins import register_io_source

from foundation.errors import InputError, OutputError
from foundation.files import draft_at
from foundation.id_list import write_ids
from foundation.records.columns import (
    ALLOCATIONS,
    JOBS,
    PLACEMENT_DTYPE,
    Column,
    PlacementArrays,
    Row,
    RunTable,
)
from foundation.records.journal import SYNC_EVERY_S, AppendFile, frame, good_length, output_error, read_frames
from foundation.records.record_checks import check_record, check_table
from foundation.records.row_types import AllocationRecord, JobRecord
from foundation.units import counted

ROWS_A_GROUP = 4_096
ROWS_A_PIECE = 512
"""Rows made at once; the file does not depend on it, the peak memory of a large run does."""


def frame_of(rows: Iterable[Row], table: RunTable) -> pl.DataFrame:
    """Return rows as a frame with the columns and types of ``table``."""
    return pl.DataFrame([_cells(row) for row in rows], schema=table.schema, orient="row")


def _cells(row: Row) -> list[object]:
    cells = [getattr(row, name) for name in row.__struct_fields__]
    return [
        [{"node": entry.node, "cores": write_ids(entry.cores)} for entry in cell]
        if isinstance(cell, tuple)
        else cell
        for cell in cells
    ]


def complete(frame: pl.DataFrame, table: RunTable, source: str) -> pl.DataFrame:
    """Return ``frame`` with the columns of ``table`` in order.

    Columns that may be null or have a default can be absent. Whole numbers of any width, columns of nulls and
    categorical texts get the table's types; nothing else is converted.

    Raises
    ------
    InputError
        A required column is missing or there is an unknown one.
    """
    for name in frame.columns:
        if name not in table.schema:
            raise InputError(f"{source}: unknown column {name}; known columns are {', '.join(table.schema)}")
    return frame.select(_completed(frame.schema, column, source) for column in table.columns)


def _completed(schema: pl.Schema, column: Column, source: str) -> pl.Expr:
    dtype = schema.get(column.name)
    if dtype is None:
        if column.default is None and not column.nullable:
            raise InputError(f"{source}: column {column.name} is missing")
        return pl.lit(column.default).cast(column.dtype).alias(column.name)
    value = pl.col(column.name)
    whole = column.dtype == pl.Int64 and dtype.is_integer()
    text = column.dtype == pl.String and isinstance(dtype, pl.Categorical | pl.Enum)
    listed = column.dtype == PLACEMENT_DTYPE and isinstance(dtype, pl.List)
    return value.cast(column.dtype) if whole or text or listed or dtype == pl.Null else value


def write_table(
    frame: pl.DataFrame,
    table: RunTable,
    folder: Path,
    *,
    placements: PlacementArrays | None = None,
    finished: bool = True,
) -> None:
    """Check the rows and write them, sorted, as ``folder/table.parquet``: whole or not at all.

    The same rows give the same bytes, in any order, with any number of threads. With ``placements`` (one
    entry for each row of ``frame``, in its order) the placement column is made in pieces, so that it never
    is in memory whole.

    Raises
    ------
    InputError
        A row breaks a rule.
    OutputError
        The file cannot be written.
    """
    path = folder / table.file_name
    frame = complete(frame, table, str(path))
    check_table(frame, table, str(path), finished=finished)
    order: npt.NDArray[np.integer] | None = None
    if placements is not None:
        frame, order = _in_order(frame, placements, table, str(path))
    else:
        frame = frame.sort(table.sort, maintain_order=True)
    try:
        with draft_at(path, draft=f".{path.name}.partial") as partial:
            _sink(_pieces(frame, placements, order), table, partial)
    except OSError as error:
        raise output_error("write", path, error) from error
    except pl.exceptions.PolarsError as error:
        if "No space left" in str(error):  # Polars wraps the writer's own errors in texts
            raise output_error("write", path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) from error
        raise OutputError(f"cannot write {path}: {error}") from error


def _in_order(
    frame: pl.DataFrame, placements: PlacementArrays, table: RunTable, source: str
) -> tuple[pl.DataFrame, npt.NDArray[np.integer] | None]:
    """Return the sorted rows, and for each of them its place before; None if they were sorted already."""
    if len(placements) != frame.height:
        raise InputError(
            f"{source}: {counted(len(placements), 'placement')} for {counted(frame.height, 'job')}"
        )
    placements.check(source)
    order = frame.select(pl.arg_sort_by(table.sort, maintain_order=True)).to_series().to_numpy()
    if (order == np.arange(len(order))).all():
        return frame, None
    return frame[order], order


def _pieces(
    frame: pl.DataFrame, placements: PlacementArrays | None, order: npt.NDArray[np.integer] | None
) -> Iterator[pl.DataFrame]:
    for first in range(0, max(frame.height, 1), ROWS_A_PIECE):
        piece = frame.slice(first, ROWS_A_PIECE)
        if placements is not None:
            if order is None:
                column = placements.column(first, first + piece.height)
            else:  # a piece at a time: the whole in another order would be in memory twice
                column = placements.reorder(order[first : first + piece.height]).column()
            piece = piece.with_columns(column.alias("placement"))
        # Gathering every row gives all pieces one layout in memory, and so the file the same bytes however
        # the frame came about; rechunk() leaves the buffers of a slice as they are.
        yield piece.select(pl.all().gather(pl.int_range(pl.len())))


def _sink(pieces: Iterator[pl.DataFrame], table: RunTable, path: Path) -> None:
    def source(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,  # noqa: ARG001 - the sink has none
        n_rows: int | None,  # noqa: ARG001 - the sink has none
        batch_size: int | None,  # noqa: ARG001 - the sink has none
    ) -> Iterator[pl.DataFrame]:
        for piece in pieces:
            yield piece if with_columns is None else piece.select(with_columns)

    register_io_source(source, schema=table.schema).sink_parquet(
        path,
        compression="zstd",
        compression_level=3,
        statistics=True,
        row_group_size=ROWS_A_GROUP,
        maintain_order=True,
    )


def read_table(
    folder: Path, table: RunTable, *, placement: bool = True, finished: bool = True
) -> pl.DataFrame | None:
    """Read and check ``folder/table.parquet``; None if there is none.

    Parameters
    ----------
    folder
        The RUN.
    table
        Which table.
    placement
        Whether to read the ``placement`` column, by far the largest of a large run.
    finished
        Whether every job must have a state.

    Raises
    ------
    InputError
        The file cannot be read, or is not such a table; the message names the file and the column.
    """
    path = folder / table.file_name
    if not path.exists():
        return None
    if not placement:
        table = table.without("placement")
    try:
        schema = pl.read_parquet_schema(path)
        if not placement:
            schema.pop("placement", None)
        frame = pl.read_parquet(path, columns=list(schema))
    except (OSError, pl.exceptions.PolarsError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"cannot read {path}: {first}; the file is damaged or not Parquet") from error
    dtypes = {name: table.schema[name] for name in table.later if name not in frame.columns}
    frame = frame.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in dtypes.items())
    check_table(frame, table, str(path), finished=finished)
    return frame


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

    def close(self) -> None:
        """Sync and close."""
        self._file.close()

    def _checked(self, entry: T, source: str) -> T:
        raise NotImplementedError


class RowJournal(EntryJournal[Row]):
    """Rows of one table."""

    def _checked(self, entry: Row, source: str) -> Row:
        return check_record(entry, source)


def _entries(path: Path, kind: type[T], table: RunTable) -> Iterator[T]:
    decoder = msgspec.msgpack.Decoder(kind)
    for _, payload in read_frames(path):
        try:
            yield decoder.decode(payload)
        except msgspec.DecodeError as error:
            raise InputError(f"{path} has a row that is not one of {table.name}: {error}") from error


def read_journal(path: Path, table: RunTable) -> pl.DataFrame:
    """Return the rows of a journal as a sorted frame; none if there is no such file.

    Raises
    ------
    InputError
        The journal is damaged or its rows are not of ``table``.
    """
    return frame_in_pieces(_entries(path, table.row, table), table)


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
    for entry in _entries(path, JobEntry, JOBS):
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
