"""The table that says which application a job of the trace runs: CSV ``trace_job,app,args``.

A fourth column, ``application``, may say what it is called where pairs of applications are spoken of.
"""

from __future__ import annotations

import csv
import shlex
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import InputError, UsageError

COLUMNS = ("trace_job", "app", "args")
NAME_COLUMN = "application"


@dataclass(frozen=True, slots=True)
class AppChoice:
    """An application and its arguments. ``eiba`` and ``rrba`` are ours; any other name is a command."""

    app: str
    args: tuple[str, ...]
    application: str | None = None


def read_apps(path: Path) -> dict[int, AppChoice]:
    """Read the table.

    Raises
    ------
    InputError
        The file cannot be read.
    UsageError
        It has other columns, a job number that is none, a job twice, or arguments that cannot be split.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file: {error}") from error
    if not rows or tuple(rows[0]) not in {COLUMNS, (*COLUMNS, NAME_COLUMN)}:
        raise UsageError(
            f"{path} must begin with the line {','.join(COLUMNS)}, or with {NAME_COLUMN} after these"
        )
    columns = rows[0]
    chosen: dict[int, AppChoice] = {}
    for number, row in enumerate(rows[1:], start=2):
        try:
            cells = dict(zip(columns, row, strict=True))
            key = int(cells["trace_job"])
            name = cells.get(NAME_COLUMN, "").strip() or None
            choice = AppChoice(cells["app"].strip(), tuple(shlex.split(cells["args"])), name)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: not {','.join(columns)} ({error})") from error
        if not choice.app or key in chosen:
            raise UsageError(f"{path}, line {number}: {'no app' if not choice.app else f'job {key} again'}")
        chosen[key] = choice
    return chosen
