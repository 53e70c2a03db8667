"""A whole trace in memory: header, jobs, and what was odd about the file."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from foundation.files import write_pieces
from workloads.swf.swf_header import SwfHeader
from workloads.swf.swf_job import SwfJob


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What a reader met.

    Parameters
    ----------
    jobs
        Jobs that were read.
    skipped
        Lines that were skipped (lenient reading only), by reason.
    examples
        The first few skipped lines, with file, line and field.
    unsorted
        Jobs with an earlier submit time than the job before.
    duplicates
        Jobs whose number an earlier job has.
    joined
        Lines that were joined with another line of their job, since they are parts of it.
    parted
        Jobs that had such lines.
    """

    jobs: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    unsorted: int = 0
    duplicates: int = 0
    joined: int = 0
    parted: int = 0

    @property
    def skipped_lines(self) -> int:
        """Skipped lines of all reasons."""
        return sum(self.skipped.values())


@dataclass(frozen=True, slots=True)
class SwfTrace:
    """A trace: its header and its jobs in the file's order.

    ``name`` is the file's name without its endings; ``report`` is the reader's.
    """

    header: SwfHeader
    jobs: tuple[SwfJob, ...]
    name: str = "trace"
    report: ReadReport = field(default_factory=ReadReport, compare=False)

    def with_jobs(self, jobs: Iterable[SwfJob], note: str) -> SwfTrace:
        """Return a trace with other jobs, and ``note`` in the header to say where they come from.

        MaxJobs and MaxRecords are set to the new count; the reader's report is dropped.
        """
        chosen = tuple(jobs)
        header = self.header.with_note(note)
        for name in ("MaxJobs", "MaxRecords"):
            header = header.with_field(name, len(chosen))
        return replace(self, header=header, jobs=chosen, report=ReadReport(jobs=len(chosen)))


def swf_lines(header: SwfHeader, jobs: Iterable[SwfJob]) -> Iterator[bytes]:
    """Yield the lines of a file: comments at their places, jobs as they were read or else in plain form.

    A job or comment that ended its file without a line end gets one where another line follows.
    """
    previous = b""
    for line in _lines_in_place(header, jobs):
        if previous:
            yield previous if previous.endswith(b"\n") else previous + b"\n"
        previous = line
    yield previous


def _lines_in_place(header: SwfHeader, jobs: Iterable[SwfJob]) -> Iterator[bytes]:
    waiting = deque(sorted(header.comments, key=lambda comment: comment.after_jobs))
    for count, job in enumerate(jobs):
        while waiting and waiting[0].after_jobs <= count:
            yield waiting.popleft().raw
        yield job.line()
    for comment in waiting:
        yield comment.raw


def write_swf(path: Path, trace: SwfTrace, packed: bool | None = None) -> None:
    """Write ``trace`` to ``path``, which then has all of it or, after an error, what it had before.

    Parameters
    ----------
    path
        The file; replaced where it exists.
    trace
        Header and jobs. A job that was read and not changed since is written as the very bytes read.
    packed
        Whether to write gzip (without name and time: the same trace gives the same bytes); by
        default, whether the name ends in ``.gz``.

    Raises
    ------
    OutputError
        The folder is missing or not writable, ``path`` is a folder or a device, or the disk is full.
    """
    write_pieces(path, swf_lines(trace.header, trace.jobs), packed=packed)
