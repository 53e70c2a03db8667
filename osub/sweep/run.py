"""A sweep: what is known is passed over, the rest is run, each result is kept as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from foundation.one_line import one_line
from osub.sweep.points import Point
from osub.sweep.store import Store
from osub.sweep.workers import Ended, Failure, Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a sweep stands: points in all, known before, done since, failed; seconds left, if known."""

    total: int
    known: int
    done: int
    failed: int
    left_s: float | None


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
    store: Store,
    workers: Workers,
    *,
    tries: int = 2,
    watch: Callable[[Standing], None] = lambda _: None,
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
        Told whenever a point has ended.
    """
    began = time.monotonic()
    outcomes = store.finished(points)
    sweep = Sweep(table=pl.DataFrame(), total=len(points), known=len(outcomes))
    left = [point for point in points if point.key not in outcomes]

    def told() -> None:
        passed_s, ended = time.monotonic() - began, sweep.done + len(sweep.failures)
        rest = len(points) - sweep.known - ended
        watch(
            Standing(
                total=len(points),
                known=sweep.known,
                done=sweep.done,
                failed=len(sweep.failures),
                left_s=passed_s / ended * rest if ended else None,
            )
        )

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
        told()
        for _ in range(tries):
            again: list[Point] = []
            if left:
                for ended in workers.run(left):
                    if (point := take(ended)) is not None:
                        again.append(point)
                    told()
            left = again
    finally:
        sweep.table = store.write_table(points, outcomes)
        store.write_failures(sweep.failures, points)
        sweep.wall_s = time.monotonic() - began
    return sweep
