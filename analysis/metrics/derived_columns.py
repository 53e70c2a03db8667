"""Columns derived from a run's jobs: waiting and running time, the slowdowns, the work that a job represents.

A job that was requeued, preempted or suspended waited more than once, and ran in several attempts: its wait
and its run are the sums, and its slowdowns are against the run that counted.

Sources: Minami, *Oversubscribing Scheduling* (2025), section 5.3.2, equations 5.1 and 5.2; the bounded
slowdown after Feitelson and Rudolph. What a job lacks the values for is null, never a number.
"""

from __future__ import annotations

import msgspec
import polars as pl

from analysis.metrics.held_stretches import stretches

WAIT_THRESHOLD_S = 5.0
BETA_S = 10.0
MOST_TAKEN = 0.1
MOST_SPREAD = 1.3


class MetricOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds of the metrics, in the run's own (compressed) seconds.

    Parameters
    ----------
    wait_threshold_s
        A job that waits longer than this counts as one that waited (thesis, Table 7.5).
    beta_s
        Least dedicated time in the bounded slowdown.
    most_taken, most_spread
        When a run is unfit to judge by: see ``analysis.metrics.use_of_host``.
    """

    wait_threshold_s: float = WAIT_THRESHOLD_S
    beta_s: float = BETA_S
    most_taken: float = MOST_TAKEN
    most_spread: float = MOST_SPREAD


def with_derived(
    jobs: pl.DataFrame,
    options: MetricOptions = MetricOptions(),
    held: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Add the derived columns to the ``jobs`` table.

    ``wait_s`` is the time from submission to the end in which the job held no cores, ``first_wait_s`` that
    before its first start (``first_start_s``); a job that is back in the queue has no ``wait_s`` yet.
    ``run_s`` is the time on cores, all attempts (``lives``) together; ``lost_s`` of it was thrown away and
    ``again_s`` set up once more, and the rest, ``useful_s``, counted. ``slowdown`` is (wait + run)/useful,
    ``slowdown_osub`` (wait + run)/dedicated, ``degradation`` useful/dedicated, ``bounded_slowdown``
    the same with max(dedicated, beta), at least 1, ``work_core_s`` cores times the time that the job needs to
    compute alone: busy, else dedicated; else the CPU time that it used. A quotient of zero seconds is
    null, and so is the degradation of a job that ran for nothing.
    ``allocated_core_s``, ``lost_core_s`` and ``again_core_s`` are times with the cores held then;
    ``resizes``, ``requeues`` and ``resumptions`` (after a preemption, or from a checkpoint) are counts.

    Parameters
    ----------
    jobs
        The table.
    options
        Thresholds.
    held
        The jobs' allocation intervals (``stretches``); None: one attempt each.
    """
    wait, run, useful = pl.col("wait_s"), pl.col("run_s"), pl.col("useful_s")
    dedicated = pl.col("dedicated_s")
    attempts = _attempts(stretches(jobs) if held is None else held)
    return (
        jobs.with_row_index("row")
        .join(attempts, on="row", how="left", maintain_order="left")
        .drop("row")
        .with_columns(
            first_wait_s=pl.col("first_start_s") - pl.col("submit_s"),
            useful_s=(run - pl.col("lost_s") - pl.col("again_s")).clip(lower_bound=0.0),
        )
        .with_columns(wait_s=pl.col("first_wait_s") + pl.col("between_s") + _waited_last())
        .with_columns(
            slowdown=_quotient(wait + run, useful),
            slowdown_osub=_quotient(wait + run, dedicated),
            degradation=pl.when((useful > 0) | (run == 0)).then(_quotient(useful, dedicated)),
            bounded_slowdown=pl.when(dedicated.is_not_null()).then(
                ((wait + run) / pl.max_horizontal(dedicated, pl.lit(options.beta_s))).clip(lower_bound=1.0)
            ),
            work_core_s=pl.coalesce(
                pl.col("busy_s") * pl.col("cores"), dedicated * pl.col("cores"), pl.col("cpu_s")
            ),
        )
        .drop("stopped_s", "between_s")
    )


def _attempts(held: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each job that started."""
    lasting = pl.col("end_s") - pl.col("start_s")
    inner = pl.col("end_s").head(pl.len() - 1)
    return held.group_by("row", maintain_order=True).agg(
        first_start_s=pl.col("start_s").first(),
        lives=pl.col("life").last() + 1,
        stopped_s=pl.col("end_s").last(),
        run_s=_sum(lasting),
        between_s=pl.when(inner.null_count() == 0).then((pl.col("start_s") - pl.col("end_s").shift()).sum()),
        again_s=pl.col("again_s").sum(),
        lost_s=pl.col("lost_s").sum(),
        allocated_core_s=_sum(lasting * pl.col("held_cores")),
        again_core_s=(pl.col("again_s") * pl.col("held_cores")).sum(),
        lost_core_s=(pl.col("lost_s") * pl.col("held_cores")).sum(),
        resizes=_count("resize"),
        requeues=_count("requeue"),
        resumptions=_count("preemption", "checkpoint"),
    )


def _waited_last() -> pl.Expr:
    """Return the wait after the last life: of a job cancelled in the queue; unknown while it is there."""
    return pl.when(pl.col("stopped_s").is_null()).then(0.0).otherwise(pl.col("end_s") - pl.col("stopped_s"))


def _sum(values: pl.Expr) -> pl.Expr:
    """Return the sum, null where a value is."""
    return pl.when(values.null_count() == 0).then(values.sum())


def _count(*causes: str) -> pl.Expr:
    return pl.col("why").is_in(causes).sum()


def _quotient(above: pl.Expr, below: pl.Expr) -> pl.Expr:
    return pl.when(below > 0).then(above / below)
