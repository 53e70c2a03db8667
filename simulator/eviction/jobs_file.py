"""Tables of jobs for eviction: CSV, read by a strict grammar; errors name file, line, job and column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import InputError
from foundation.units import counted
from simulator.eviction.eviction_problem import MOST_LOSS, MOST_MINUTES, MOST_NODES, EvictableJob

REQUIRED = ("job", "nodes", "loss", "ts_min", "ta_min")
OPTIONAL = ("wait_min",)
_MOST_BYTES = 16 << 20
_MOST_JOBS = 100_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,12}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,15})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one job, by column, and their position."""

    where: str
    name: str
    texts: Mapping[str, str]

    def error(self, column: str, problem: str) -> InputError:
        """Return an error that names file, line, job and column."""
        return InputError(f"{self.where}: job {self.name}: {column}: {problem}")

    def number(self, column: str, most: float) -> float | None:
        """Return a number from 0 to ``most``, None for an empty or a missing cell."""
        text = self.texts.get(column, "")
        if not text:
            return None
        if not _NUMBER.fullmatch(text):
            raise self.error(column, f"{_shown(text)} is no number from 0 to {most:,.0f}")
        value = float(text)
        if value > most:
            raise self.error(column, f"{_shown(text)} is more than {most:,.0f}")
        return value

    def whole(self, column: str, most: int) -> int:
        """Return a whole number from 1 to ``most``."""
        text = self.texts.get(column, "")
        if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= most:
            raise self.error(column, f"{_shown(text)} is no whole number from 1 to {most:,}")
        return int(text)


def read_jobs(path: Path) -> list[EvictableJob]:
    """Read the jobs of a question: ``job,nodes,loss,ts_min,ta_min``, in any order, and perhaps ``wait_min``.

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


def read_cells(path: Path, required: Sequence[str], optional: Sequence[str]) -> Iterator[Cells]:
    """Read the rows of a table with a column ``job``, each job once; see :func:`read_jobs`."""
    lines = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        header = next(lines, [])
        _check_header(path, header, required, optional)
        seen: set[str] = set()
        for row in lines:
            if not row:
                continue
            cells = _cells(f"{path}:{lines.line_num}", header, row)
            if cells.name in seen:
                raise cells.error("job", "it is here twice")
            seen.add(cells.name)
            if len(seen) > _MOST_JOBS:
                raise InputError(f"{path}: more than {_MOST_JOBS:,} jobs")
            yield cells
    except csv.Error as error:
        raise InputError(f"{path}:{lines.line_num}: no CSV: {error}") from error


def by_number(name: str) -> tuple[bool, int, str]:
    """Return the key that orders jobs: by number, then those whose names are none, by name."""
    return (False, int(name), name) if _WHOLE.fullmatch(name) else (True, 0, name)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start:,}") from error


def _check_header(
    path: Path, header: Sequence[str], required: Sequence[str], optional: Sequence[str]
) -> None:
    missing = [name for name in required if name not in header]
    if missing:
        raise InputError(f"{path}:1: no column {', '.join(missing)}; a table has {','.join(required)}")
    unknown = [name for name in header if name not in (*required, *optional)]
    if unknown:
        known = ", ".join((*required, *optional))
        raise InputError(f"{path}:1: unknown column {_shown(unknown[0])}; known ones are {known}")
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise InputError(f"{path}:1: column {twice[0]} is here twice")


def _cells(where: str, header: Sequence[str], row: Sequence[str]) -> Cells:
    if len(row) != len(header):
        raise InputError(f"{where}: {counted(len(row), 'cell')} for {counted(len(header), 'column')}")
    texts = {column: text.strip() for column, text in zip(header, row, strict=True)}
    name = texts["job"]
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{where}: job {_shown(name)}: job: a name has 1 to 64 letters, digits, _, ., + and -, the first "
            "of them a letter, a digit or _"
        )
    return Cells(where, name, texts)


def _job(cells: Cells) -> EvictableJob:
    ta_min, wait_min = cells.number("ta_min", MOST_MINUTES), cells.number("wait_min", MOST_MINUTES) or 0.0
    if wait_min > (ta_min or 0.0):
        raise cells.error("wait_min", "it is more than ta_min, of which it is a part")
    return EvictableJob(
        name=cells.name,
        nodes=cells.whole("nodes", MOST_NODES),
        loss=cells.number("loss", MOST_LOSS),
        ts_min=cells.number("ts_min", MOST_MINUTES),
        ta_min=ta_min,
        wait_min=wait_min,
    )


def _shown(text: str) -> str:
    """Return a user's text in quotes, cut short; what cannot be printed is escaped."""
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
