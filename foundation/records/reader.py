"""Reads a RUN, finished or not, and checks what it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from foundation.records.columns import ALLOCATIONS, HOST, JOBS, SLICES
from foundation.records.record_checks import check_agreement, check_table
from foundation.records.records_folder import LOG_NAME, is_finished, journal_path, read_info
from foundation.records.row_journal import job_frames, read_events, read_journal
from foundation.records.run_info import RunInfo
from foundation.records.table_files import read_table


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
