"""Sizes of malleable jobs: ``trace_job,min_nodes,preferred_nodes,max_nodes,parallel``, a line a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from foundation.csv_table import CsvRow, read_csv
from foundation.errors import InputError

HEADER = ("trace_job", "min_nodes", "preferred_nodes", "max_nodes", "parallel")
MOST_NODES = 10_000_000
MOST_NUMBER = 10**16
MOST_JOBS = 10_000_000


@dataclass(frozen=True, slots=True)
class JobSizes:
    """How many nodes a malleable job can use.

    ``parallel`` is the share of its work that is spread over its nodes, by Amdahl's law.
    """

    least: int
    preferred: int
    most: int
    parallel: float

    def time(self, nodes: int) -> float:
        """Return the time on so many nodes, in parts of the time on one."""
        return 1 - self.parallel + self.parallel / nodes


def read_job_sizes(path: Path) -> dict[int, JobSizes]:
    """Read the sizes of jobs by job number.

    Raises
    ------
    InputError
        The file cannot be read, or a line is malformed; the message names file, line, job and column.
    """
    found: dict[int, JobSizes] = {}
    for row in size_lines(path):
        job, sizes = _line(row)
        if job in found:
            raise row.error("trace_job", f"job {job} is there twice")
        found[job] = sizes
    return found


def size_lines(path: Path) -> Iterator[CsvRow]:
    """Yield the rows of a file of sizes; see ``read_csv``."""
    return read_csv(path, HEADER, most_rows=MOST_JOBS)


def _line(row: CsvRow) -> tuple[int, JobSizes]:
    job = row.whole("trace_job", MOST_NUMBER)
    least, preferred, most = (row.whole(name, MOST_NODES) for name in HEADER[1:4])
    if not least <= preferred <= most:
        raise InputError(
            f"{row.where}: min_nodes, preferred_nodes, max_nodes: job {job}: {least}, {preferred}, {most} do "
            "not ascend"
        )
    parallel = row.number("parallel", 1)
    if parallel is None:
        raise row.error("parallel", f"job {job}: it is empty")
    return job, JobSizes(least, preferred, most, parallel)


def sizes_pieces(sizes: Iterable[tuple[int, JobSizes]]) -> Iterator[bytes]:
    """Yield the lines of such a file."""
    yield (",".join(HEADER) + "\n").encode()
    for job, one in sizes:
        yield f"{job},{one.least},{one.preferred},{one.most},{one.parallel!r}\n".encode()
