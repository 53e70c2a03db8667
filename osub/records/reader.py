"""Reads a RUN, finished or not, and checks what it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from osub.records.checks import check_table
from osub.records.columns import ALLOCATIONS, JOBS, SLICES, Table
from osub.records.folder import LOG_NAME, is_finished, journal_path, read_info
from osub.records.row_journal import read_events, read_journal
from osub.records.run_info import RunInfo
from osub.records.tables import read_table


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
    """

    path: Path
    info: RunInfo
    jobs: pl.DataFrame
    allocations: pl.DataFrame | None
    slices: pl.DataFrame | None
    complete: bool

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
        ``path`` is not a RUN, or something in it is damaged or breaks a rule.
    """
    info = read_info(path)
    finished = is_finished(path)
    jobs = (
        read_table(path, JOBS, placement=placement) if finished else _journalled(path, JOBS, finished=False)
    )
    if jobs is None:
        jobs = JOBS.schema.to_frame()
    if not placement and "placement" in jobs.columns:
        jobs = jobs.drop("placement")
    return Run(
        path=path,
        info=info,
        jobs=jobs,
        allocations=_either(path, ALLOCATIONS, finished=finished),
        slices=_either(path, SLICES, finished=finished),
        complete=finished,
    )


def _either(path: Path, table: Table, *, finished: bool) -> pl.DataFrame | None:
    if not finished and journal_path(path, table).exists():
        return _journalled(path, table, finished=False)
    return read_table(path, table)


def _journalled(path: Path, table: Table, *, finished: bool) -> pl.DataFrame:
    journal = journal_path(path, table)
    frame = read_journal(journal, table)
    check_table(frame, table, str(journal), finished=finished)
    return frame
