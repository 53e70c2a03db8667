"""The rows of a ``jobs.csv``, by column, whatever the order of the columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foundation.errors import InputError
from foundation.one_line import one_line
from workloads.exchange.fields import Fields, shown

ALIASES = {
    "jobID": "job_id",
    "requested_number_of_processors": "requested_number_of_resources",
    "allocated_processors": "allocated_resources",
}
NEEDED = ("job_id", "submission_time", "requested_number_of_resources")
LONGEST_FIELD = 1 << 24
_NOTHING = frozenset({"", "nan", "NaN", "None"})


@contextmanager
def _wide_fields() -> Iterator[None]:
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def csv_rows(path: Path) -> Iterator[Fields]:
    """Yield the rows of the file by column; each names file, line and job in its errors.

    Raises
    ------
    InputError
        The file cannot be read, lacks a column, or a row is malformed.
    """
    try:
        with _wide_fields(), path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file, strict=True)
            names = [ALIASES.get(name.strip(), name.strip()) for name in next(rows, [])]
            _check_columns(path, names)
            for row in rows:
                if not row:
                    continue
                where = f"{path}:{rows.line_num}"
                if len(row) != len(names):
                    raise InputError(f"{where}: has {len(row)} columns, and the first line {len(names)}")
                values = {name: text for name, text in zip(names, row, strict=True) if text not in _NOTHING}
                yield Fields(f"{where}: job {shown(values.get('job_id', '?'))}", values)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no CSV file: {error}") from error


def _check_columns(path: Path, names: list[str]) -> None:
    missing = [name for name in NEEDED if name not in names]
    if not missing and "starting_time" not in names and "waiting_time" not in names:
        missing = ["starting_time"]
    if not missing and "finish_time" not in names and "execution_time" not in names:
        missing = ["finish_time"]
    if missing:
        raise InputError(
            f"{path}: {missing[0]}: there is no such column: is this a jobs.csv of Batsim or evalys?"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: {one_line(twice, 60)}: the column is there twice")
