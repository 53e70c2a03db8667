"""The table that says which application a job of the trace runs: CSV ``trace_job,app,args``."""

from __future__ import annotations

import csv
import shlex
from dataclasses import dataclass
from pathlib import Path

from osub.errors import InputError, UsageError

COLUMNS = ("trace_job", "app", "args")


@dataclass(frozen=True, slots=True)
class AppChoice:
    """An application and its arguments. ``eiba`` and ``rrba`` are ours; any other name is a command."""

    app: str
    args: tuple[str, ...]


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
    if not rows or tuple(rows[0]) != COLUMNS:
        raise UsageError(f"{path} must begin with the line {','.join(COLUMNS)}")
    chosen: dict[int, AppChoice] = {}
    for number, row in enumerate(rows[1:], start=2):
        try:
            job, app, args = row
            key = int(job)
            choice = AppChoice(app.strip(), tuple(shlex.split(args)))
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: not trace_job,app,args ({error})") from error
        if not choice.app or key in chosen:
            raise UsageError(f"{path}, line {number}: {'no app' if not choice.app else f'job {key} again'}")
        chosen[key] = choice
    return chosen
