"""Counts of durations by bucket, as Prometheus wants them; cheap enough for every slice."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram at an instant: upper bounds (s), what each bucket and all below it hold, and the sum (s).

    The last count is that of all.
    """

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    sum_s: float


class Histogram:
    """Counts durations; filled by one thread."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def add(self, duration_s: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(self._bounds_s, duration_s)] += 1
        self._sum_s += duration_s

    def buckets(self) -> Buckets:
        """Return what was counted so far."""
        counts, so_far = [], 0
        for count in self._counts:
            so_far += count
            counts.append(so_far)
        return Buckets(self._bounds_s, tuple(counts), self._sum_s)
