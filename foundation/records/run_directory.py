"""Writes and reads run directories (RUN).

Writes a RUN: as it happens (``RunWriter``), or at once when it is over (``write_run``: the simulator).

A kill at any instant loses no row that was reported as written. While a run goes on its rows are in journals:
``jobs.journal`` (each job with its allocations in one entry), ``slices.journal`` and ``host.journal``.
``finish`` turns them into Parquet tables; ``jobs.parquet`` appears last, in one rename, and from then on the
run is finished.

Reads a RUN, finished or not, and checks what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import polars as pl

from foundation.errors import InputError, OutputError
from foundation.records.columns import ALLOCATIONS, HOST, JOBS, SLICES, TABLES, PlacementArrays, RunTable
from foundation.records.journal import AppendFile
from foundation.records.record_checks import check_agreement, check_table
from foundation.records.records_folder import (
    LOG_NAME,
    FolderLock,
    is_finished,
    journal_path,
    new_folder,
    read_info,
    write_info,
    write_start,
)
from foundation.records.row_types import HostRecord, JobRecord, RunInfo, SliceRecord
from foundation.records.table_files import (
    EntryJournal,
    JobEntry,
    JobJournal,
    RowJournal,
    complete,
    frame_of,
    good_lines_length,
    job_frames,
    read_entries,
    read_events,
    read_journal,
    read_table,
    write_table,
)
from foundation.trust import refuse_others


@dataclass(frozen=True, slots=True)
class Run:
    """What a RUN directory holds.

    Parameters
    ----------
    path
        The directory.
    info
        Its ``run.json``.
    jobs
        One row a job, ordered by ``trace_job``.
    allocations, slices
        The other tables, or None if the run has none.
    complete
        Whether the run is finished; if not, jobs may lack their state.
    host
        CPU use of the host meanwhile by owner, or None where it was not measured.
    """

    path: Path
    info: RunInfo
    jobs: pl.DataFrame
    allocations: pl.DataFrame | None
    slices: pl.DataFrame | None
    complete: bool
    host: pl.DataFrame | None = None

    def events(self) -> Iterator[dict[str, object]]:
        """Yield the events of ``log.jsonl``."""
        return read_events(self.path / LOG_NAME)


def load_run(path: Path, *, placement: bool = True) -> Run:
    """Read the RUN in ``path``; an unfinished one from its journals.

    Parameters
    ----------
    path
        The directory.
    placement
        Whether to read the jobs' ``placement`` column, by far the largest of a large run. Without it the
        frame has no such column.

    Raises
    ------
    InputError
        ``path`` is not a RUN, something in it is damaged or breaks a rule, or its tables contradict each
        other.
    """
    info = read_info(path)
    journalled = None if is_finished(path) else _journalled(path)
    finished = is_finished(path)  # it may have been finished, and its journals removed, meanwhile
    if finished or journalled is None:
        jobs = read_table(path, JOBS, placement=placement)
        allocations, slices = read_table(path, ALLOCATIONS), read_table(path, SLICES)
    else:
        jobs, allocations, slices = journalled
        info = _with_new_nodes(info, allocations)
    if jobs is None:
        jobs = JOBS.schema.to_frame()
    if not placement and "placement" in jobs.columns:
        jobs = jobs.drop("placement")
    if allocations is not None:
        source, jobs_source = (
            path / table.file_name if finished else journal_path(path, JOBS) for table in (ALLOCATIONS, JOBS)
        )
        check_agreement(jobs, allocations, info, str(source), str(jobs_source))
    return Run(
        path=path,
        info=info,
        jobs=jobs,
        allocations=allocations,
        slices=slices,
        complete=finished,
        host=read_table(path, HOST) if finished else _samples(path),
    )


def _with_new_nodes(info: RunInfo, allocations: pl.DataFrame | None) -> RunInfo:
    """Return a description that also names nodes that came while the run went on, such as one made anew."""
    if info.kind != "real" or info.node_names is None or allocations is None:
        return info
    places = allocations.get_column("placement").drop_nulls()
    used = places.explode(empty_as_null=True).struct.field("node").unique(maintain_order=True)
    new = [name for name in used.drop_nulls() if name not in info.node_names]
    return msgspec.structs.replace(info, node_names=(*info.node_names, *new)) if new else info


def _samples(path: Path) -> pl.DataFrame | None:
    journal = journal_path(path, HOST)
    if not journal.exists():
        return read_table(path, HOST)
    samples = read_journal(journal, HOST)
    check_table(samples, HOST, str(journal))
    return samples


def _journalled(path: Path) -> tuple[pl.DataFrame, pl.DataFrame | None, pl.DataFrame | None]:
    """Read jobs, allocations and slices of a run that goes on."""
    source = journal_path(path, JOBS)
    jobs, allocations = job_frames(source)
    check_table(jobs, JOBS, str(source), finished=False)
    if allocations is not None:
        check_table(allocations, ALLOCATIONS, str(source), finished=False)
    journal = journal_path(path, SLICES)
    if not journal.exists():
        return jobs, allocations, read_table(path, SLICES)
    slices = read_journal(journal, SLICES)
    check_table(slices, SLICES, str(journal), finished=False)
    return jobs, allocations, slices


_SLICES_AT_ONCE = 10_000


def utc_now() -> str:
    """Return this instant in ISO 8601, UTC, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunWriter:
    """A RUN that is being written; made by ``create`` or ``reopen``, a context manager that closes it.

    Leaving the context without ``finish`` keeps the journals, and ``reopen`` goes on from there.

    Parameters
    ----------
    path
        The RUN, which has its ``run.json``.
    info
        What is in it.
    lock
        The lock on it, which this object now owns.
    now
        Clock for the log, an ISO 8601 text.
    """

    def __init__(
        self, path: Path, info: RunInfo, lock: FolderLock, *, now: Callable[[], str] = utc_now
    ) -> None:
        self.path = path
        self.info = info
        self._lock = lock
        self._now = now
        self._journals: dict[str, EntryJournal[Any]] = {}
        self._log: AppendFile | None = None

    @classmethod
    def create(cls, path: Path, info: RunInfo, trace: Path, *, now: Callable[[], str] = utc_now) -> RunWriter:
        """Make the RUN with its ``run.json`` and its copy of ``trace``, both or nothing.

        Raises
        ------
        InputError
            The trace cannot be read, or ``info`` is not valid.
        OutputError
            ``path`` holds something already, cannot be made, or the disk is full.
        """
        with new_folder(path) as made:
            info = write_start(made, info, trace)
            lock = FolderLock(made)
        return cls(path, info, lock, now=now)

    @classmethod
    def reopen(cls, path: Path, *, now: Callable[[], str] = utc_now) -> RunWriter:
        """Open a RUN that was not finished, to go on with it.

        Raises
        ------
        InputError
            ``path`` is not a RUN, or a journal is damaged.
        OutputError
            The run is finished, or another process is writing it.
        TrustError
            It is another user's: going on with it means to run the commands that it holds.
        """
        info = read_info(path)
        refuse_others(path)
        lock = FolderLock(path)
        if is_finished(path):
            lock.release()
            raise OutputError(f"the run in {path} is finished; there is nothing to resume")
        return cls(path, info, lock, now=now)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def entries(self) -> dict[int, JobEntry]:
        """Return the jobs written so far by ``trace_job``, each with what it has held."""
        return read_entries(journal_path(self.path, JOBS))

    def append_job(self, *records: JobRecord) -> None:
        """Append jobs; a job written again (same ``trace_job``) replaces what was written before.

        Allocations written before are kept.

        Raises
        ------
        InputError
            A row breaks a rule; nothing is written.
        OutputError
            The disk is full; nothing is written.
        """
        self.append_entry(*map(JobEntry, records))

    def append_entry(self, *entries: JobEntry) -> None:
        """Append jobs, each with all of its allocations: both are written, or neither; raises as above."""
        self._journal(JOBS).append(*entries)

    def append_host(self, *records: HostRecord) -> None:
        """Append samples of who used the host; raises as ``append_job`` does."""
        self._journal(HOST).append(*records)

    def replace_slices(self, records: Iterable[SliceRecord]) -> None:
        """Write time slices instead of all those written before, so that a repetition doubles none.

        Raises
        ------
        InputError, OutputError
            As ``append_job``; also what ``records`` raises. Some of the slices may have been written.
        """
        if SLICES.name in self._journals:
            self._journals.pop(SLICES.name).close()
        journal_path(self.path, SLICES).unlink(missing_ok=True)
        source = iter(records)
        while part := list(islice(source, _SLICES_AT_ONCE)):
            self._journal(SLICES).append(*part)

    def event(self, kind: str, **fields: object) -> None:
        """Append an event to ``log.jsonl``: ``at`` (UTC), ``kind`` and the fields.

        Raises
        ------
        InputError
            A field is not plain data.
        OutputError
            The disk is full.
        """
        path = self.path / LOG_NAME
        if self._log is None:
            self._log = AppendFile(path, good_bytes=good_lines_length(path))
        try:
            line = msgspec.json.encode({"at": self._now(), "kind": kind, **fields})
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: event {kind} has a field that JSON cannot hold: {error}") from error
        self._log.append(line + b"\n")

    def finish(self, *, wall_s: float, cpu_s: float | None = None) -> None:
        """Turn the journals into tables, complete ``run.json``, and close.

        Parameters
        ----------
        wall_s, cpu_s
            See ``RunInfo``.

        Raises
        ------
        InputError
            A job has no state, or a table breaks a rule.
        OutputError
            The disk is full. The journals are still there: ``reopen`` and ``finish`` again.
        """
        self._close_files()
        jobs, allocations = job_frames(journal_path(self.path, JOBS))
        if allocations is not None:
            write_table(allocations, ALLOCATIONS, self.path)
        for table in (SLICES, HOST):
            if journal_path(self.path, table).exists():
                write_table(read_journal(journal_path(self.path, table), table), table, self.path)
        info = _with_new_nodes(self.info, allocations)
        self.info = msgspec.structs.replace(info, wall_s=wall_s, cpu_s=cpu_s)
        write_info(self.path, self.info)
        write_table(jobs, JOBS, self.path)
        for table in TABLES:
            journal_path(self.path, table).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the files and let other processes write; closing twice is allowed."""
        try:
            self._close_files()
        finally:
            self._lock.release()

    def _journal(self, table: RunTable) -> EntryJournal[Any]:
        if table.name not in self._journals:
            kind = JobJournal if table is JOBS else RowJournal
            self._journals[table.name] = kind(journal_path(self.path, table))
        return self._journals[table.name]

    def _close_files(self) -> None:
        for journal in self._journals.values():
            journal.close()
        if self._log is not None:
            self._log.close()
        self._journals, self._log = {}, None


def write_host(path: Path, samples: Iterable[HostRecord]) -> None:
    """Write who used the host into a RUN that was made where that cannot be seen, such as in a container.

    Raises
    ------
    InputError
        The samples break a rule.
    OutputError
        The disk is full.
    """
    write_table(frame_of(samples, HOST), HOST, path)


def read_host(path: Path) -> list[HostRecord]:
    """Return the samples of who used the host that a RUN has; raises InputError."""
    samples = _samples(path)
    return [] if samples is None else [HostRecord(**row) for row in samples.iter_rows(named=True)]


def write_run(
    path: Path,
    info: RunInfo,
    trace: Path,
    jobs: pl.DataFrame,
    *,
    placements: PlacementArrays | None = None,
    allocations: pl.DataFrame | None = None,
    slices: pl.DataFrame | None = None,
) -> None:
    """Write a finished RUN at once, whole or not at all: the simulator's way.

    Parameters
    ----------
    path
        The RUN to make.
    info
        Its description, with ``wall_s`` and the other times.
    trace
        What was simulated.
    jobs
        One row a job; columns that may be null can be absent.
    placements
        The ``placement`` column of ``jobs`` in compact form, one entry for each row; ``jobs`` then lacks it.
    allocations, slices
        The other tables, or None.

    Raises
    ------
    InputError
        A row breaks a rule, the allocations contradict the jobs, ``info`` is not valid, or the trace cannot
        be read.
    OutputError
        ``path`` holds something already, cannot be made, or the disk is full.
    """
    with new_folder(path) as made:
        write_table(jobs, JOBS, made, placements=placements)
        for frame, table in ((allocations, ALLOCATIONS), (slices, SLICES)):
            if frame is not None:
                write_table(frame, table, made)
        if allocations is not None:
            sources = str(made / ALLOCATIONS.file_name), str(made / JOBS.file_name)
            whole, held = complete(jobs, JOBS, sources[1]), complete(allocations, ALLOCATIONS, sources[0])
            check_agreement(whole, held, info, *sources)
        write_start(made, info, trace)
