"""Tables of jobs for eviction: CSV, read by a strict grammar; errors name file, line, job and column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from foundation.csv_table import CsvRow, read_csv, shown
from foundation.errors import InputError
from simulator.eviction.eviction_problem import MOST_LOSS, MOST_MINUTES, MOST_NODES, EvictableJob

REQUIRED = ("job", "nodes", "loss", "ts_min", "ta_min")
OPTIONAL = ("wait_min", "share")
_MOST_BYTES = 16 << 20
_MOST_JOBS = 100_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,12}", re.ASCII)


def read_jobs(path: Path) -> list[EvictableJob]:
    """Read the jobs of a question: ``job,nodes,loss,ts_min,ta_min[,wait_min][,share]``, in any order.

    An empty ``loss`` is a job that may not be killed, an empty time a checkpoint that there isn't. Jobs are
    returned by number where their names are whole numbers, then by name.

    Raises
    ------
    InputError
        The file cannot be read, lacks a column, has one that is not known, or a cell that is not what its
        column wants; or a job is in it twice.
    """
    jobs = [_job(cells) for cells in read_cells(path, REQUIRED, OPTIONAL)]
    return sorted(jobs, key=lambda job: by_number(job.name))


def read_cells(path: Path, required: Sequence[str], optional: Sequence[str]) -> Iterator[CsvRow]:
    """Read the rows of a table with a column ``job``, each job once; see :func:`read_jobs`."""
    seen: set[str] = set()
    for row in read_csv(path, required, optional, most_rows=_MOST_JOBS, most_bytes=_MOST_BYTES):
        name = row.text("job")
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{row.where}: job {shown(name)}: job: a name has 1 to 64 letters, digits, _, ., + and -, "
                "the first of them a letter, a digit or _"
            )
        row = replace(row, where=f"{row.where}: job {name}")
        if name in seen:
            raise row.error("job", "it is here twice")
        seen.add(name)
        yield row


def by_number(name: str) -> tuple[bool, int, str]:
    """Return the key that orders jobs: by number, then those whose names are none, by name."""
    return (False, int(name), name) if _WHOLE.fullmatch(name) else (True, 0, name)


def _job(cells: CsvRow) -> EvictableJob:
    ta_min, wait_min = cells.number("ta_min", MOST_MINUTES), cells.number("wait_min", MOST_MINUTES) or 0.0
    if wait_min > (ta_min or 0.0):
        raise cells.error("wait_min", "it is more than ta_min, of which it is a part")
    share = cells.number("share", 1.0)
    if share == 0:
        raise cells.error("share", "it is a part of the bandwidth, above 0 and at most 1")
    return EvictableJob(
        name=cells.text("job"),
        nodes=cells.whole("nodes", MOST_NODES),
        loss=cells.number("loss", MOST_LOSS),
        ts_min=cells.number("ts_min", MOST_MINUTES),
        ta_min=ta_min,
        wait_min=wait_min,
        share=1.0 if share is None else share,
    )
