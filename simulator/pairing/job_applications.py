"""Which application each job of a trace runs: said in a file, or drawn.

Logs have no names of applications. Where they number executables, jobs of one executable and user run one
application; else all jobs of a user do, for users run the same things again and again.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foundation.errors import InputError, UsageError
from foundation.one_line import one_line
from simulator.engine.kernels.field_records import Ints

_MOST_LINES = 10_000_000


def applications_of(
    word: str | None, known: Sequence[str], number: Ints, user: Ints, executable: Ints, seed: int
) -> tuple[tuple[str, ...], Ints]:
    """Return names of applications, and for each job which of them it runs.

    Parameters
    ----------
    word
        A CSV file with columns ``job`` and ``application``; names with commas, of which one is drawn for each
        user and executable; None: of all that are known.
    known
        Applications whose losses are known.
    number, user, executable
        Of each job; shape (J,); -1 where not known.
    seed
        Of what is drawn.

    Raises
    ------
    UsageError
        No application is named.
    InputError
        One is not known, or the file cannot be used.
    """
    if word is not None and (word.endswith(".csv") or "/" in word):
        return _said(Path(word), known, number)
    names = tuple(known) if word is None else tuple(dict.fromkeys(filter(None, word.split(","))))
    if not names:
        raise UsageError("--apps names no application")
    unknown = [name for name in names if name not in set(known)]
    if unknown:
        raise InputError(
            f"no pairs of application {one_line(unknown[0], 80)}; there are {', '.join(known[:8])}"
            f"{' and more' if len(known) > 8 else ''}"
        )
    nobody = (user < 0) & (executable < 0)
    groups = np.stack((np.where(nobody, -number - 2, user), executable), axis=1)
    kinds, which = np.unique(groups, axis=0, return_inverse=True)
    drawn: Ints = np.random.default_rng(seed).integers(0, len(names), size=len(kinds))
    return names, drawn[which.ravel()]


def _said(path: Path, known: Sequence[str], number: Ints) -> tuple[tuple[str, ...], Ints]:
    place = {name: index for index, name in enumerate(known)}
    said: dict[int, int] = {}
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            missing = {"job", "application"} - set(reader.fieldnames or ())
            if missing:
                raise InputError(f"{path}: column {min(missing)} is missing; wanted: job, application")
            for row in reader:
                if reader.line_num > _MOST_LINES:
                    raise InputError(f"{path} has more than {_MOST_LINES:,} lines")
                _take(path, reader.line_num, row, place, said)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}: {one_line(str(error))}") from error
    app: npt.NDArray[np.int64] = np.empty(len(number), dtype=np.int64)
    for index, job in enumerate(number.tolist()):
        if job not in said:
            raise InputError(f"{path} does not say which application job {job} runs")
        app[index] = said[job]
    return tuple(known), app


def _take(path: Path, line: int, row: dict[str, str], place: dict[str, int], said: dict[int, int]) -> None:
    text, name = row["job"] or "", row["application"] or ""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InputError(f"{path}: line {line}: job {one_line(text, 40)} is no job number")
    if name not in place:
        raise InputError(f"{path}: line {line}: no pairs of application {one_line(name, 80)}")
    if int(text) in said:
        raise InputError(f"{path}: line {line}: job {text} is there twice")
    said[int(text)] = place[name]
