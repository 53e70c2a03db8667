"""A sweep's folder: a file a point that is done, and which is never run again; a table of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl

from foundation.errors import InputError, OutputError
from foundation.whole_file import draft_at, write_whole
from osub.sweep.measure import Outcome
from osub.sweep.points import Point

MARK = ".osub-sweep"
TABLE = "points.parquet"
FAILED = "failed.json"
_POINTS = "points"


class Store:
    """The folder of a sweep.

    Parameters
    ----------
    folder
        A new one, an empty one, or that of an earlier sweep.

    Raises
    ------
    OutputError
        It holds something else, or cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
                raise OutputError(f"{folder} is not a sweep's: choose another --out")
            (folder / _POINTS).mkdir(parents=True, exist_ok=True)
            (folder / MARK).touch()
        except OSError as error:
            raise OutputError(f"cannot write in {folder}: {error.strerror}") from error

    def finished(self, points: Iterable[Point]) -> dict[str, Outcome]:
        """Return what is known of points already, by key; a file that is damaged is as good as none."""
        found: dict[str, Outcome] = {}
        for point in points:
            with suppress(OSError, ValueError):
                known = json.loads(self._path(point.key).read_text(encoding="utf-8"))
                if isinstance(known, dict):
                    found[point.key] = known
        return found

    def keep(self, point: Point, outcome: Outcome) -> None:
        """Keep what came of a point; when this returns a kill can no longer lose it."""
        write_whole(self._path(point.key), json.dumps(outcome, allow_nan=False) + "\n")

    def write_table(self, points: Iterable[Point], outcomes: Mapping[str, Outcome]) -> pl.DataFrame:
        """Write and return the table: a row a point that is done, with its parameters and its figures."""
        rows = [
            {"key": point.key} | point.parameters | outcomes[point.key]
            for point in points
            if point.key in outcomes
        ]
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {name: [row.get(name) for row in rows] for name in names}
        frame = pl.DataFrame([_series(name, values) for name, values in columns.items()])
        try:
            with draft_at(self.folder / TABLE) as draft:
                frame.write_parquet(draft)
        except OSError as error:
            raise OutputError(f"cannot write {self.folder / TABLE}: {error.strerror}") from error
        return frame

    def write_failures(self, failures: Mapping[str, str], points: Iterable[Point]) -> None:
        """Write which points failed and why, beside their parameters; no file where none did."""
        path = self.folder / FAILED
        if not failures:
            path.unlink(missing_ok=True)
            return
        rows = [
            {"why": failures[point.key], "parameters": point.parameters}
            for point in points
            if point.key in failures
        ]
        write_whole(path, json.dumps(rows, indent=1) + "\n")

    def _path(self, key: str) -> Path:
        return self.folder / _POINTS / f"{key}.json"


def read_table(folder: Path) -> pl.DataFrame:
    """Return the table of a sweep; raises InputError."""
    try:
        return pl.read_parquet(folder / TABLE)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{folder} has no table of a sweep: {error}") from error


def _series(name: str, values: Sequence[object]) -> pl.Series:
    """Return a column; of values of different kinds, such as 5 and "5%", their texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return pl.Series(name, values, dtype=pl.Float64 if float in kinds else pl.Int64)
    if len(kinds) > 1:
        values = [None if value is None else str(value) for value in values]
    return pl.Series(name, values)
