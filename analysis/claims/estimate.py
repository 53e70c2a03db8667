"""The mean over seeds and its 95% confidence interval, by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import msgspec

CONFIDENCE = 0.95
_MOST_FREEDOM = 1000
_LARGEST_T = 1000.0


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over ``count`` seeds; ``low`` and ``high`` bound it, None for a single seed."""

    mean: float
    low: float | None
    high: float | None
    count: int

    def text(self, unit: str = "") -> str:
        """Return the mean and its interval, such as ``84 [82, 86] h``."""
        after = f" {unit}" if unit and unit != "%" else unit
        if self.low is None or self.high is None or self.low == self.high:
            return f"{figures(self.mean)}{after}"
        return f"{figures(self.mean)} [{figures(self.low)}, {figures(self.high)}]{after}"


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of one value a seed, with its 95% confidence interval.

    Raises
    ------
    ValueError
        There is no value, or one of them is not finite.
    """
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"an estimate needs finite values, not {list(values)}")
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean=mean, low=None, high=None, count=1)
    # Equal values have a mean that may be off by a rounding; their interval is a point all the same.
    if min(values) == max(values):
        return Estimate(mean=values[0], low=values[0], high=values[0], count=count)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = student_t(count - 1) * math.sqrt(variance / count)
    return Estimate(mean=mean, low=mean - half, high=mean + half, count=count)


@cache
def student_t(freedom: int) -> float:
    """Return the t that a variable of so many degrees of freedom stays within with 95% probability.

    Found by halving intervals from the closed form (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """
    freedom = min(freedom, _MOST_FREEDOM)
    low, high = 0.0, _LARGEST_T
    while high - low > 1e-9:
        middle = (low + high) / 2
        if _within(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _within(t: float, freedom: int) -> float:
    """Return the probability that Student's t lies between -t and t."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(2 + odd, freedom + 1, 2):
        total += term
        term *= square * (power - 1) / power
    inner = math.sin(angle) * total
    return 2 / math.pi * (angle + inner) if odd else inner


def figures(value: float) -> str:
    """Return a number with three significant digits, or whole from 100 on."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
