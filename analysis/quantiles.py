"""The one definition of a quantile here: linear between the two values whose ranks are nearest.

Of n values in ascending order, the quantile of a share p is at rank (n - 1) p, counted from 0; between two
ranks it is on the line between their values (Hyndman and Fan, Sample Quantiles in Statistical Packages, 1996,
definition 7). It is what numpy's ``quantile`` and ``percentile`` do by themselves and polars with ``linear``;
with p = 1/2 it is the median of both and of ``statistics``. What isn't known, None or NaN, isn't counted.

When a share of the jobs, or of their work, is *done* is no quantile but an instant of a curve: see
``analysis.metrics.run_metrics``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt


class NumberColumn(Protocol):
    """A column of numbers, such as polars has; what isn't known becomes NaN."""

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return the numbers as an array."""
        ...


Numbers: TypeAlias = Iterable[float | None] | npt.NDArray[Any] | NumberColumn


def quantile(values: Numbers, share: float) -> float | None:
    """Return the quantile of a ``share`` between 0 and 1; None where no value is known."""
    known = _known(values)
    return float(np.quantile(known, share)) if known.size else None


def quantiles(values: Numbers, shares: Sequence[float] | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the quantiles of several ``shares``; raises ValueError where no value is known."""
    known = _known(values)
    if not known.size:
        raise ValueError("quantiles of no value")
    found: npt.NDArray[np.float64] = np.quantile(known, shares)
    return found


def _known(values: Numbers) -> npt.NDArray[np.float64]:
    if isinstance(values, np.ndarray):
        numbers = values.astype(np.float64)
    elif hasattr(values, "to_numpy"):
        numbers = values.to_numpy().astype(np.float64)
    else:
        numbers = np.array([np.nan if value is None else value for value in values], np.float64)
    return numbers[~np.isnan(numbers)]
