"""A sweep and its folder: what is known is passed over, the rest is run, each result is kept as it comes.

The folder has a file for each point that is done, which is never run again, and a table of all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from foundation.errors import InputError, OutputError
from foundation.files import draft_at, write_whole
from foundation.one_line import one_line
from osub.sweep.points import Outcome, Point
from osub.sweep.workers import Ended, Failure, Workers

MARK = ".osub-sweep"
TABLE = "points.parquet"
FAILED = "failed.json"
_POINTS = "points"


@dataclass(slots=True, kw_only=True)
class Sweep:
    """What came of a sweep.

    Parameters
    ----------
    table
        A row a point that is done.
    total, known, done
        Points asked for; of them known before, and run now.
    failures
        Why the others have no result, by key.
    wall_s, work_s
        Time since the beginning, and the sum of what the points took by themselves.
    """

    table: pl.DataFrame
    total: int
    known: int
    done: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    wall_s: float = 0.0
    work_s: float = 0.0


def run_sweep(
    points: Sequence[Point],
    store: SweepStore,
    workers: Workers,
    *,
    tries: int = 2,
    watch: Callable[[Sweep, float | None], None] = lambda _sweep, _left_s: None,
) -> Sweep:
    """Run what is not known yet of a sweep's points.

    A point that cannot be simulated has failed; one that ends in an error of another kind is tried again.
    Ctrl-C and a kill lose the points under way only.

    Parameters
    ----------
    points, store, workers
        What to run, where it is kept, and who runs it.
    tries
        How often a point is tried that ends in an error which is not its own.
    watch
        Called whenever a point has ended, with the seconds that are left, if that is known.
    """
    began = time.monotonic()
    outcomes = store.finished(points)
    sweep = Sweep(table=pl.DataFrame(), total=len(points), known=len(outcomes))
    left = [point for point in points if point.key not in outcomes]

    def report() -> None:
        passed_s, ended = time.monotonic() - began, sweep.done + len(sweep.failures)
        rest = len(points) - sweep.known - ended
        watch(sweep, passed_s / ended * rest if ended else None)

    def take(ended: Ended) -> Point | None:
        """Keep what came of a point; return it if it is worth another try."""
        point, outcome = ended
        if isinstance(outcome, Failure):
            sweep.failures[point.key] = outcome.why
            return point if outcome.again else None
        sweep.work_s += float(outcome.get("wall_s", 0.0))
        if "error" in outcome:
            sweep.failures[point.key] = one_line(str(outcome["error"]))
            return None
        sweep.failures.pop(point.key, None)
        store.keep(point, outcome)
        outcomes[point.key] = outcome
        sweep.done += 1
        return None

    try:
        report()
        for _ in range(tries):
            again: list[Point] = []
            if left:
                for ended in workers.run(left):
                    if (point := take(ended)) is not None:
                        again.append(point)
                    report()
            left = again
    finally:
        sweep.table = store.write_table(points, outcomes)
        store.write_failures(sweep.failures, points)
        sweep.wall_s = time.monotonic() - began
    return sweep


class SweepStore:
    """The folder of a sweep.

    Parameters
    ----------
    folder
        A new one, an empty one, or that of an earlier sweep.
    looking
        Whether it is only looked at; then nothing is made.

    Raises
    ------
    OutputError
        It holds something else, or cannot be written.
    """

    def __init__(self, folder: Path, *, looking: bool = False) -> None:
        self.folder = folder
        try:
            if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
                raise OutputError(f"{folder} is not a sweep's: choose another --out")
            if looking:
                return
            (folder / _POINTS).mkdir(parents=True, exist_ok=True)
            (folder / MARK).touch()
        except OSError as error:
            raise OutputError(f"cannot write in {folder}: {error.strerror}") from error

    def finished(self, points: Iterable[Point]) -> dict[str, Outcome]:
        """Return what is known of points already, by key; a file that is damaged is as good as none.

        Raises
        ------
        InputError
            One is there and cannot be read: it is finished for all we know, and not run again.
        """
        found: dict[str, Outcome] = {}
        for point in points:
            path = self._path(point.key)
            try:
                known = json.loads(path.read_text(encoding="utf-8"))
            except (FileNotFoundError, ValueError):
                continue
            except OSError as error:
                raise InputError(f"cannot read {path}: {error.strerror}") from error
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
        """Write which points failed and why, with their parameters; no file where none did."""
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
