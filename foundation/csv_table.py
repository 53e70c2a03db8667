"""Tables in CSV that a user wrote: one strict reader; its errors name file, line and column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from pathlib import Path

from foundation.errors import InputError
from foundation.units import counted

MOST_BYTES = 256 << 20
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class CsvRow:
    """The cells of a row by column, without blanks around them, and its position (``FILE:LINE``)."""

    where: str
    texts: Mapping[str, str]

    def text(self, column: str) -> str:
        """Return a cell; one of a column that the table lacks is empty."""
        return self.texts.get(column, "")

    def error(self, column: str, problem: str) -> InputError:
        """Return an error that names file, line and column."""
        return InputError(f"{self.where}: {column}: {problem}")

    def number(self, column: str, most: float, least: float = 0.0) -> float | None:
        """Return a number within bounds, None for an empty cell; raises InputError."""
        text = self.text(column)
        if not text:
            return None
        number = float(text) if _NUMBER.fullmatch(text) else nan
        bounds = f" from {least:g} to {most:,.0f}" if most < inf else ""
        if not (isfinite(number) and least <= number <= most):
            raise self.error(column, f"{shown(text)} is no number{bounds}")
        return number

    def whole(self, column: str, most: int, least: int = 1) -> int:
        """Return a whole number within bounds; raises InputError."""
        text = self.text(column)
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise self.error(column, f"{shown(text)} is no whole number from {least} to {most:,}")
        return int(text)


def read_csv(
    path: Path,
    needed: Sequence[str],
    optional: Sequence[str] | None = (),
    *,
    most_rows: int = 1_000_000,
    most_bytes: int = MOST_BYTES,
) -> Iterator[CsvRow]:
    """Read the rows of a table in UTF-8 whose first line names its columns; blank lines are passed over.

    Parameters
    ----------
    path
        The file.
    needed, optional
        Columns that it has and may have, in any order; ``optional`` of None: any others, too.
    most_rows, most_bytes
        Larger tables are refused.

    Raises
    ------
    InputError
        It cannot be read, lacks a column, has one that is not known or twice, or a row of another length.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(most_bytes + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    yield from csv_rows(path, content, needed, optional, most_rows=most_rows, most_bytes=most_bytes)


def csv_rows(
    path: Path,
    content: bytes,
    needed: Sequence[str],
    optional: Sequence[str] | None = (),
    *,
    most_rows: int = 1_000_000,
    most_bytes: int = MOST_BYTES,
) -> Iterator[CsvRow]:
    """Return the rows of what was read of a file; see ``read_csv``."""
    if len(content) > most_bytes:
        raise InputError(f"{path} is larger than {most_bytes >> 20} MiB")
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start:,}") from error
    try:
        header = next(lines, [])
        _check_header(path, header, needed, optional)
        for count, row in enumerate(filter(None, lines)):
            where = f"{path}:{lines.line_num}"
            if count == most_rows:
                raise InputError(f"{where}: more than {most_rows:,} rows")
            if len(row) != len(header):
                raise InputError(f"{where}: {counted(len(row), 'cell')} for {counted(len(header), 'column')}")
            yield CsvRow(where, {name: text.strip() for name, text in zip(header, row, strict=True)})
    except csv.Error as error:
        raise InputError(f"{path}:{lines.line_num}: no CSV: {error}") from error


LOSS_COLUMNS = ("victim", "opponent", "e_v")


def losses_of(rows: Iterator[CsvRow]) -> Iterator[tuple[str, str, float]]:
    """Yield victim, opponent and loss of each row of a table of pairs; raises InputError."""
    for row in rows:
        victim, opponent, loss = row.text("victim"), row.text("opponent"), row.number("e_v", inf, -inf)
        if loss is None or not victim or not opponent:
            raise InputError(f"{row.where}: victim, opponent and a finite e_v are wanted")
        yield victim, opponent, loss


def _check_header(
    path: Path, header: Sequence[str], needed: Sequence[str], optional: Sequence[str] | None
) -> None:
    missing = [name for name in needed if name not in header]
    if missing:
        raise InputError(f"{path}:1: no column {', '.join(missing)}; a table has {','.join(needed)}")
    unknown = [] if optional is None else [name for name in header if name not in (*needed, *optional)]
    if unknown:
        known = ", ".join((*needed, *(optional or ())))
        raise InputError(f"{path}:1: unknown column {shown(unknown[0])}; known ones are {known}")
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise InputError(f"{path}:1: column {twice[0]} is here twice")


def shown(text: str) -> str:
    """Return a user's text in quotes, cut short; what cannot be printed is escaped."""
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
