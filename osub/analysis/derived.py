"""Columns derived from a run's jobs: waiting and running time, the slowdowns, the work that a job stands for.

Sources: Minami, *Oversubscribing Scheduling* (2025), section 5.3.2, equations 5.1 and 5.2; the bounded
slowdown after Feitelson and Rudolph. What a job lacks the values for is null, never a number.
"""

from __future__ import annotations

import msgspec
import polars as pl

WAIT_THRESHOLD_S = 5.0
BETA_S = 10.0


class MetricOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds of the metrics, in the run's own (compressed) seconds.

    Parameters
    ----------
    wait_threshold_s
        A job that waits longer than this counts as one that waited (thesis, Table 7.5).
    beta_s
        Least dedicated time in the bounded slowdown.
    """

    wait_threshold_s: float = WAIT_THRESHOLD_S
    beta_s: float = BETA_S


MEASURES = ("wait_s", "run_s", "slowdown", "slowdown_osub", "degradation", "bounded_slowdown")
"""Names of the derived columns that describe a single job."""


def with_derived(jobs: pl.DataFrame, options: MetricOptions = MetricOptions()) -> pl.DataFrame:  # noqa: B008
    """Add the derived columns to the ``jobs`` table.

    ``wait_s`` is start minus submission, ``run_s`` end minus start, ``slowdown`` (wait + run)/run,
    ``slowdown_osub`` (wait + run)/dedicated, ``degradation`` run/dedicated, ``bounded_slowdown``
    (wait + run)/max(dedicated, beta), ``work_core_s`` cores times the time that the job needs to compute
    alone: busy, else dedicated; else the CPU time that it used. A quotient of zero seconds is null.
    """
    wait, run = pl.col("wait_s"), pl.col("run_s")
    dedicated = pl.col("dedicated_s")
    return jobs.with_columns(
        wait_s=pl.col("start_s") - pl.col("submit_s"),
        run_s=pl.col("end_s") - pl.col("start_s"),
    ).with_columns(
        slowdown=_quotient(wait + run, run),
        slowdown_osub=_quotient(wait + run, dedicated),
        degradation=_quotient(run, dedicated),
        bounded_slowdown=pl.when(dedicated.is_not_null()).then(
            (wait + run) / pl.max_horizontal(dedicated, pl.lit(options.beta_s))
        ),
        work_core_s=pl.coalesce(
            pl.col("busy_s") * pl.col("cores"), dedicated * pl.col("cores"), pl.col("cpu_s")
        ),
    )


def _quotient(above: pl.Expr, below: pl.Expr) -> pl.Expr:
    return pl.when(below > 0).then(above / below)
