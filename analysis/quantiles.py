"""Percentiles by the nearest rank: always a value that occurred."""

from __future__ import annotations

import math

import polars as pl


def nearest_rank(values: pl.Series, percent: float) -> float | None:
    """Return the least value that ``percent`` (0 to 100) of the known ones don't exceed; None without any."""
    known = values.drop_nulls().sort()
    if not len(known):
        return None
    # 0.95 x 20 is a little above 19 in binary: a rank must not jump for that.
    rank = math.ceil(percent / 100 * len(known) - 1e-9)
    return float(known[max(rank, 1) - 1])
