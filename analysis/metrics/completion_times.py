"""When how much of a run was done: completion over time, by jobs and by CPU time, and its percentiles.

Thesis, section 5.3.2, Figure 7.6 and Tables 5.5, 6.3 and 7.6. Time counts from the run's first due time. A
job counts at its end, with one (by jobs) or with the work that it stands for (by CPU time: ``work_core_s``,
which is the same under every setting). Only jobs that ran and ended count; the others are missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

PERCENTS = (90, 95, 100)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Completion:
    """Completion over time.

    Parameters
    ----------
    time_s
        Shape (n,), ascending: ends of jobs, from the run's first due time.
    share
        Shape (n,), ascending to 1: what is done at that instant.
    missing
        Jobs without an end, or without the weight.
    """

    time_s: Floats
    share: Floats
    missing: int

    def at(self, percent: float) -> float | None:
        """Return the first instant at which ``percent`` of the whole is done; None without any job."""
        if not len(self.time_s):
            return None
        reached = np.searchsorted(self.share, percent / 100 - 1e-12)
        return float(self.time_s[min(int(reached), len(self.time_s) - 1)])

    def thinned(self, points: int) -> Completion:
        """Return at most about ``points`` points of the curve, the last among them."""
        if len(self.time_s) <= points:
            return self
        kept = np.unique(np.linspace(0, len(self.time_s) - 1, points).astype(np.int64))
        return Completion(self.time_s[kept], self.share[kept], self.missing)


def origin_s(jobs: pl.DataFrame) -> float:
    """Return the first due time, from which completion counts (0 for a whole run)."""
    first = jobs.get_column("due_s").min()
    return float(first) if isinstance(first, int | float) else 0.0


def completion_by_jobs(jobs: pl.DataFrame, origin: float) -> Completion:
    """Return the share of jobs that are done over time."""
    return _completion(jobs.with_columns(weight=pl.lit(1.0)), origin)


def completion_by_cpu_time(jobs: pl.DataFrame, origin: float) -> Completion:
    """Return the share of the work that is done over time; ``jobs`` has the derived columns."""
    return _completion(jobs.with_columns(weight=pl.col("work_core_s")), origin)


def _completion(jobs: pl.DataFrame, origin: float) -> Completion:
    ended = jobs.filter(pl.all_horizontal(pl.col("start_s", "end_s", "weight").is_not_null()))
    steps = ended.group_by("end_s").agg(pl.col("weight").sum()).sort("end_s")
    weights = steps.get_column("weight").to_numpy()
    total = weights.sum()
    share = np.cumsum(weights) / total if total > 0 else np.ones(len(weights))
    return Completion(
        time_s=steps.get_column("end_s").to_numpy() - origin,
        share=np.minimum(share, 1.0),
        missing=jobs.height - ended.height,
    )
