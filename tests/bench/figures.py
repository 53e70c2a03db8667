"""Rows of the table: medians with intervals, and ratios to the baseline of the same run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from numpy import percentile
from numpy.random import default_rng

_DRAWS = 2_000
Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Row:
    """A figure: its median, a 95% interval where it was repeated, and the ratio to its baseline.

    ``load`` is the host's when it was measured; ``better`` says which direction is.
    """

    area: str
    figure: str
    value: float
    interval: Interval
    unit: str
    better: str
    baseline: str | None
    ratio: float | None
    ratio_interval: Interval
    method: str
    load: float
    repeats: int


def rows_of(lines: Iterable[str]) -> list[Row]:
    """Return the rows that benchmarks printed, a line of JSON each."""
    return [_row(json.loads(line)) for line in lines if line.strip()]


def _row(message: dict[str, object]) -> Row:
    trials, others = _numbers(message["trials"]), _numbers(message["baseline_trials"])
    ratios = _ratios(trials, others)
    return Row(
        area=str(message["area"]),
        figure=str(message["figure"]),
        value=statistics.median(trials),
        interval=_interval(trials),
        unit=str(message["unit"]),
        better=str(message["better"]),
        baseline=None if message["baseline"] is None else str(message["baseline"]),
        ratio=statistics.median(ratios) if ratios else None,
        ratio_interval=_interval(ratios),
        method=str(message["method"]),
        load=_numbers([message["load"]])[0],
        repeats=len(trials),
    )


def _numbers(values: object) -> list[float]:
    assert isinstance(values, list)
    return [float(value) for value in values]


def _ratios(trials: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return each trial over its own baseline; where they were not paired, over the baseline's median."""
    if not others or statistics.median(others) == 0:
        return []
    if len(trials) == len(others):
        return [one / other for one, other in zip(trials, others, strict=True) if other]
    middle = statistics.median(others)
    return [one / middle for one in trials]


def _interval(values: Sequence[float]) -> Interval:
    """Return the 95% interval of the median over repeats (bootstrap); None for fewer than three."""
    if len(values) < 3:
        return None
    draws = default_rng(1).choice(list(values), (_DRAWS, len(values)))
    medians = [statistics.median(draw) for draw in draws.tolist()]
    low, high = percentile(medians, [2.5, 97.5]).tolist()
    return low, high


def table(rows: Sequence[Row]) -> str:
    """Return the table in Markdown."""
    head = ("area", "figure", "value", "baseline", "ratio", "load", "how")
    lines = [
        (
            row.area, row.figure, f"{_formatted(row.value, row.interval)} {row.unit}",
            row.baseline or "", _formatted(row.ratio, row.ratio_interval), f"{row.load:.1f}",
            row.method,
        )
        for row in rows
    ]  # fmt: skip
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ("---",) * len(head), *lines))


def _formatted(value: float | None, interval: Interval) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if interval is None else f"{value:.4g} ({interval[0]:.4g} to {interval[1]:.4g})"
