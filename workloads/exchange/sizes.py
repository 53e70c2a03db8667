"""Sizes of malleable jobs: ``trace_job,min_nodes,preferred_nodes,max_nodes,parallel``, a line a job."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import InputError
from foundation.units import counted
from workloads.exchange.fields import shown

HEADER = ("trace_job", "min_nodes", "preferred_nodes", "max_nodes", "parallel")
MOST_NODES = 10_000_000


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
    for where, row in size_lines(path):
        job, sizes = _line(row, where)
        if job in found:
            raise InputError(f"{where}: trace_job: job {job} is there twice")
        found[job] = sizes
    return found


def size_lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines below the header, of as many columns, each with its position (``FILE:LINE``).

    Raises
    ------
    InputError
        The file cannot be read, or has another form; the message names file and line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file, strict=True)
            if tuple(next(rows, ())) != HEADER:
                raise InputError(f"{path}:1: a file of sizes begins with the line {','.join(HEADER)}")
            for row in rows:
                where = f"{path}:{rows.line_num}"
                if len(row) != len(HEADER):
                    raise InputError(
                        f"{where}: {counted(len(row), 'column')}; a file of sizes has {','.join(HEADER)}"
                    )
                yield where, row
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no file of sizes: {error}") from error


def _line(row: list[str], where: str) -> tuple[int, JobSizes]:
    for name, text in zip(HEADER[:4], row, strict=False):
        if not (text.isascii() and text.isdigit() and len(text) < 17):
            raise InputError(f"{where}: {name}: {shown(text)} is not a whole number")
    job, least, preferred, most = map(int, row[:4])
    if not 1 <= least <= preferred <= most <= MOST_NODES:
        raise InputError(
            f"{where}: min_nodes, preferred_nodes, max_nodes: job {job}: {least}, {preferred}, {most} do not "
            "ascend from 1 on"
        )
    try:
        parallel = float(row[4])
    except ValueError:
        parallel = -1.0
    if not 0 <= parallel <= 1:
        raise InputError(f"{where}: parallel: job {job}: {shown(row[4])} is not a number from 0 to 1")
    return job, JobSizes(least, preferred, most, parallel)


def sizes_pieces(sizes: Iterable[tuple[int, JobSizes]]) -> Iterator[bytes]:
    """Yield the lines of such a file."""
    yield (",".join(HEADER) + "\n").encode()
    for job, one in sizes:
        yield f"{job},{one.least},{one.preferred},{one.most},{one.parallel!r}\n".encode()
