"""The fast reader: a whole trace as one polars frame.

Chunks of the file go to numpy's number parser at once, after checks over whole chunks that each
line has 18 plain numbers. A chunk that fails a check is read again line by line, with
``parse_line`` as judge, so that both readers accept the same files and say the same of the others.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from workloads.swf.swf_header import SwfComment, SwfHeader
from workloads.swf.swf_job import (
    FIELD_COUNT,
    LARGEST,
    LONGEST_LINE,
    STREAM_FAULTS,
    SWF_FIELDS,
    LineFaultError,
    SwfJob,
    is_blank,
    open_trace,
    parse_line,
)
from workloads.swf.swf_reader import (
    LONE_PART,
    PART_STATUSES,
    JoinedParts,
    Omissions,
    ReadReport,
    join_parts,
    no_jobs,
    refusal,
    trace_name,
    until_damage,
)

CHUNK_BYTES = 1 << 21
_PLAIN = b"0123456789-. \t\r\n"

_WHOLE = [index for index, swf_field in enumerate(SWF_FIELDS) if swf_field.whole]
_STATUS = next(index for index, swf_field in enumerate(SWF_FIELDS) if swf_field.name == "status")
_PARTS = sorted(PART_STATUSES)
_REQUIRED = [index for index, swf_field in enumerate(SWF_FIELDS) if swf_field.required]

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SwfColumns:
    """A trace by columns.

    Parameters
    ----------
    header
        The comment lines.
    frame
        One row a job, in the file's order, columns named as the fields of ``SwfJob``; counts and
        identifiers are Int64, seconds and KiB Float64, what the trace does not know is null.
    extensions
        Columns 19 and up by row, for the rows that have them.
    name
        The file's name without its endings.
    report
        What the reader met.
    """

    header: SwfHeader
    frame: pl.DataFrame
    extensions: dict[int, tuple[float, ...]]
    name: str
    report: ReadReport


def procs_column() -> pl.Expr:
    """Return the processors to give each job of a frame, as ``SwfJob.procs``."""
    requested = pl.col("requested_procs")
    return pl.when(requested > 0).then(requested).otherwise("allocated_procs")


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Which jobs of a trace are submitted after another has ended (SWF fields 17 and 18).

    Parameters
    ----------
    preceding
        Row of the job that precedes each, always an earlier one; -1: none does.
    think_s
        Seconds from the end of that one to the submission; NaN: not known.
    ignored
        How many jobs name a preceding job in vain, by reason.
    """

    preceding: NDArray[np.int64]
    think_s: NDArray[np.float64]
    ignored: dict[str, int]

    @property
    def count(self) -> int:
        """How many jobs depend on another."""
        return int((self.preceding >= 0).sum())


def numbers_of(frame: pl.DataFrame, name: str, missing: float = float("nan")) -> NDArray[np.float64]:
    """Return a column of ``SwfColumns.frame`` as numbers, with ``missing`` for what is not known."""
    values: NDArray[np.float64] = frame[name].cast(pl.Float64).fill_null(missing).to_numpy()
    return values


NOT_IN_TRACE = "after a preceding job that is not in the trace"
NOT_BEFORE = "after a preceding job that is not on an earlier line"


def dependencies_of(frame: pl.DataFrame) -> Dependencies:
    """Return the dependencies of a frame of jobs, with the columns of ``SwfColumns.frame``.

    The format lets a job follow "a previous job in the workload": one on an earlier line. So there is no
    circle, and a job that names a later one, or itself, depends on none.
    """
    names = frame["preceding_job"].fill_null(-1).to_numpy()
    names_one = names > 0
    found = np.full(len(names), -1, dtype=np.int64)
    if names_one.any():
        number = frame["job_number"].to_numpy()
        order = np.argsort(number, kind="stable")
        place = np.minimum(np.searchsorted(number[order], names), len(number) - 1)
        found = np.where(names_one & (number[order][place] == names), order[place], -1)
    is_earlier = found < np.arange(len(found))
    think_s = numbers_of(frame, "think_s")
    counts = {NOT_IN_TRACE: int((names_one & (found < 0)).sum()), NOT_BEFORE: int((~is_earlier).sum())}
    return Dependencies(
        np.where(is_earlier, found, -1),
        np.where(think_s >= 0, think_s, np.nan),
        {reason: count for reason, count in counts.items() if count},
    )


@dataclass(slots=True)
class _Loading:
    path: Path
    strict: bool
    blocks: list[Matrix] = field(default_factory=list)
    comments: list[SwfComment] = field(default_factory=list)
    extensions: dict[int, tuple[float, ...]] = field(default_factory=dict)
    omitted: Omissions = field(default_factory=Omissions)
    jobs: int = 0
    lines: int = 0
    numbers: set[float] = field(default_factory=set)
    """Job numbers but for those of ``unnumbered``: a part without submit time looks for its own."""
    unnumbered: list[Matrix] = field(default_factory=list)
    joined: JoinedParts = field(default_factory=JoinedParts)

    def add(self, chunk: bytes) -> None:
        """Take whole lines: the leading comments, then numbers."""
        start = 0
        while start < len(chunk) and (chunk[start : start + 1] == b";" or chunk[start : start + 1].isspace()):
            end = chunk.find(b"\n", start) + 1 or len(chunk)
            line = chunk[start:end]
            if line[:1] != b";" and not line.isspace():
                break
            self.comments.append(SwfComment(line, self.jobs))
            self.lines += 1
            start = end
        body = chunk[start:]
        if not body:
            return
        block = parse_block(body)
        if block is None:
            self._add_lines(body)
            return
        self.blocks.append(block)
        self.unnumbered.append(block)
        self.jobs += len(block)
        self.lines += len(block)

    def _add_lines(self, body: bytes) -> None:
        rows: list[list[float]] = []
        for raw in io.BytesIO(body):
            self.lines += 1
            if raw[:1] == b";" or raw.isspace():
                self.comments.append(SwfComment(raw, self.jobs))
                continue
            try:
                job = parse_line(raw)
            except LineFaultError as fault:
                if not is_blank(raw):
                    self.refuse(f"{self.path}:{self.lines}: {fault.detail}", fault.reason)
                continue
            if job.submit_s < 0 and not self._has(job.job_number):
                self.refuse(f"{self.path}:{self.lines}: {LONE_PART}", "part of an unknown job")
                continue
            if job.extension:
                self.extensions[self.jobs] = job.extension
            rows.append([-1.0 if value is None else float(value) for value in job.values()])
            self.numbers.add(job.job_number)
            self.jobs += 1
        if rows:
            self.blocks.append(np.array(rows))

    def _has(self, number: int) -> bool:
        while self.unnumbered:
            self.numbers.update(self.unnumbered.pop()[:, 0].tolist())
        return number in self.numbers

    def join(self) -> None:
        """Join the parts of jobs."""
        table = np.concatenate(self.blocks)
        places = np.flatnonzero(np.isin(table[:, 0], table[np.isin(table[:, _STATUS], _PARTS), 0]))
        lines = ((place, _job(table[place], self.extensions.get(place, ()))) for place in places.tolist())
        self.joined = found = join_parts(lines, {})
        for place, job in found.changed.items():
            table[place] = [-1.0 if value is None else value for value in job.values()]
            self.extensions[place] = job.extension
        for place in found.dropped:
            self.extensions.pop(place, None)
        self.blocks = [np.delete(table, found.dropped, axis=0)]
        self.extensions = {found.kept_before(row): tail for row, tail in self.extensions.items() if tail}
        self.comments = found.comments(self.comments)
        self.jobs -= len(found.dropped)

    def refuse(self, message: str, reason: str) -> None:
        """Raise where reading is strict, else count."""
        if self.strict:
            raise refusal(message, self.jobs)
        self.omitted.count(reason, message)


def _job(row: NDArray[np.float64], extension: tuple[float, ...]) -> SwfJob:
    """Return the job of a row, as ``parse_line`` has it."""
    numbers: list[Any] = [int(number) if number.is_integer() else number for number in row.tolist()]
    fields: list[Any] = [None if number == -1 else number for number in numbers]
    fields[1] = numbers[1]
    fields.append(extension)
    return SwfJob(*fields)


def parse_block(body: bytes) -> Matrix | None:
    """Return the numbers of ``body``, one row a line, or ``None`` where a line needs a closer look.

    A closer look is needed for lines that do not have exactly 18 numbers of digits, sign and
    point, that have a negative number other than -1, a fraction in a field of whole numbers, no job number or
    no submit time, or a number beyond ``LARGEST``.
    """
    if body.translate(None, _PLAIN):
        return None
    letters = np.frombuffer(body, dtype=np.uint8)
    blank = letters <= ord(" ")
    starts = ~blank
    starts[1:] &= blank[:-1]
    ends = np.flatnonzero(letters == ord("\n"))
    firsts = np.concatenate(([0], ends + 1))
    firsts = firsts[firsts < len(letters)]
    if np.any(np.add.reduceat(starts, firsts, dtype=np.int64) != FIELD_COUNT):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            numbers = np.fromstring(body, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    # a word such as "1-2" reads as two numbers, so the count tells
    if numbers.size != len(firsts) * FIELD_COUNT:
        return None
    block = numbers.reshape(-1, FIELD_COUNT)
    sound = (
        np.all((block >= 0) | (block == -1)) and np.all(block[:, _REQUIRED] >= 0) and np.all(block <= LARGEST)
    )
    if not sound or np.any(block[:, _WHOLE] != np.floor(block[:, _WHOLE])):
        return None
    return block


def chunks(stream: io.BufferedReader) -> Iterator[bytes]:
    """Yield pieces of ``stream`` that end at line ends, about ``CHUNK_BYTES`` each.

    Where reading fails, the whole lines read so far come first and the error after them. A line
    longer than ``LONGEST_LINE`` is cut to that length.
    """
    pieces: list[bytes] = []
    held = 0
    line = b""
    try:
        while piece := stream.read1(CHUNK_BYTES):
            cut = piece.rfind(b"\n") + 1
            if not cut:
                line = (line + piece)[:LONGEST_LINE]
                continue
            pieces += (line, piece[:cut])
            held += len(line) + cut
            line = piece[cut:]
            if held >= CHUNK_BYTES:
                yield b"".join(pieces)
                pieces, held = [], 0
    except (*STREAM_FAULTS, OSError):
        yield b"".join(pieces)
        raise
    yield b"".join((*pieces, line))


def load_columns(path: Path, strict: bool = True) -> SwfColumns:
    """Read all of ``path`` into columns; what is accepted and what is raised is as for ``read_swf``."""
    loading = _Loading(path, strict)
    with open_trace(path) as stream:
        for chunk in until_damage(path, chunks(stream), loading.omitted, strict=strict):
            loading.add(chunk)
    if any(np.isin(block[:, _STATUS], _PARTS).any() for block in loading.blocks):
        loading.join()
    if not loading.jobs:
        report = ReadReport(skipped=loading.omitted.reasons)
        raise no_jobs(path, report, len(loading.comments))
    frame = _frame(loading.blocks)
    submits = frame["submit_s"].to_numpy()
    report = ReadReport(
        loading.jobs,
        loading.omitted.reasons,
        tuple(loading.omitted.examples),
        int(np.count_nonzero(np.diff(submits) < 0)),
        loading.jobs - frame["job_number"].n_unique(),
        len(loading.joined.dropped),
        loading.joined.jobs,
    )
    header = SwfHeader(tuple(loading.comments))
    return SwfColumns(header, frame, loading.extensions, trace_name(path), report)


def _frame(blocks: list[Matrix]) -> pl.DataFrame:
    columns: list[pl.Series] = []
    for index, swf_field in enumerate(SWF_FIELDS):
        values = np.concatenate([block[:, index] for block in blocks])
        series = pl.Series(swf_field.name, values.astype(np.int64) if swf_field.whole else values)
        columns.append(
            series.to_frame().select(pl.when(pl.col(swf_field.name) != -1).then(pl.col(swf_field.name)))[
                swf_field.name
            ]
        )
    return pl.DataFrame(columns)
