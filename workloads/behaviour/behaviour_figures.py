"""Figures of interactive behaviour, next to those published for a real machine.

Source: thesis section 6.2.4 and Figure 6.3, 193 interactive jobs of TSUBAME3.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.quantiles import quantiles
from workloads.swf import InteractivePattern

PEAKS_H = (1, 2, 4, 6, 12)
PEAK_WIDTH_S = 60.0
FEW_PERIODS = 10


@dataclass(frozen=True, slots=True)
class BehaviourStatistics:
    """The figures of a number of interactive jobs.

    Parameters
    ----------
    jobs
        How many; those without length are left out.
    length_p90_s
        90th percentile of the execution time.
    short_share
        Share of jobs shorter than 2 h.
    peak_share
        Share of jobs that end within a minute after 1, 2, 4, 6 or 12 h.
    under_10_percent, under_1_percent
        Shares of jobs by utilisation: busy time over execution time.
    few_periods_share
        Share of jobs with fewer than 10 busy periods.
    most_periods
        The largest number of busy periods.
    longest_busy_p54_s, longest_busy_s
        54th percentile and largest of the jobs' longest busy periods.
    """

    jobs: int
    length_p90_s: float
    short_share: float
    peak_share: float
    under_10_percent: float
    under_1_percent: float
    few_periods_share: float
    most_periods: int
    longest_busy_p54_s: float
    longest_busy_s: float


PUBLISHED = {
    "length_p90_s": 5.2 * 3600,
    "under_10_percent": 0.71,
    "under_1_percent": 0.37,
    "most_periods": 94.0,
    "longest_busy_p54_s": 30.0,
    "longest_busy_s": 46_715.0,
}
"""The figures that the thesis gives as numbers, by field of ``BehaviourStatistics``."""


def behaviour_statistics(patterns: Sequence[InteractivePattern]) -> BehaviourStatistics | None:
    """Return the figures of ``patterns``; ``None`` where none has any length."""
    known = [pattern for pattern in patterns if pattern.total_s > 0]
    if not known:
        return None
    lengths_s = np.array([pattern.total_s for pattern in known])
    shares = np.array([pattern.busy_s for pattern in known]) / lengths_s
    counts = np.array([len(pattern.activations_s) for pattern in known])
    longest_s = np.array([max(pattern.activations_s, default=0.0) for pattern in known])
    after_s = lengths_s[:, None] - 3600.0 * np.array(PEAKS_H)
    at_peak = ((after_s >= 0) & (after_s <= PEAK_WIDTH_S)).any(axis=1)
    return BehaviourStatistics(
        jobs=len(known),
        length_p90_s=float(quantiles(lengths_s, (0.9,))[0]),
        short_share=float(np.mean(lengths_s < 2 * 3600)),
        peak_share=float(np.mean(at_peak)),
        under_10_percent=float(np.mean(shares < 0.10)),
        under_1_percent=float(np.mean(shares < 0.01)),
        few_periods_share=float(np.mean(counts < FEW_PERIODS)),
        most_periods=int(counts.max()),
        longest_busy_p54_s=float(quantiles(longest_s, (0.54,))[0]),
        longest_busy_s=float(longest_s.max()),
    )
