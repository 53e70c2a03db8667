"""The journal of jobs: a job's row and all of its allocations are one entry, whole or not there at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import polars as pl

from foundation.errors import InputError
from foundation.records.columns import ALLOCATIONS, JOBS
from foundation.records.journal import read_frames
from foundation.records.record_checks import check_record
from foundation.records.row_journal import EntryJournal, frame_in_pieces
from foundation.records.row_types import AllocationRecord, JobRecord


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
