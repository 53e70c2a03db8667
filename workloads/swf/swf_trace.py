"""A whole trace in memory: header, jobs, and what was odd about the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

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
        The first few skipped lines, told with file, line and field.
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
