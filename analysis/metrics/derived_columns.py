"""Rows derived from a run's jobs: stretches in which a job held cores, waiting and running time, slowdowns.

A job that was requeued, preempted or suspended waited more than once, and ran in several attempts: its wait
and its run are the sums, and its slowdowns are against the run that counted.

Sources: Minami, *Oversubscribing Scheduling* (2025), section 5.3.2, equations 5.1 and 5.2; the bounded
slowdown after Feitelson and Rudolph. What a job lacks the values for is null, never a number.

A *stretch* is a time in which a job held the same cores, a *life* one or more of them without a break: a
requeue or a preemption ends it, a resize does not. A stretch begins with its set-up and ends with what of it
was thrown away; the time between counts. Source: Fan et al., hybrid scheduling of on-demand, rigid and
malleable jobs, section IV-D, where useful time is without lost work and repeated set-up.
"""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from foundation.records import parse_cores
from foundation.records.record_checks import in_order

STRETCHES = ("row", "life", "why", "start_s", "end_s", "placement", "held_cores", "again_s", "lost_s")


def stretches(jobs: pl.DataFrame, allocations: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return what every job held, ordered by job and time.

    Parameters
    ----------
    jobs, allocations
        The tables, which agree with each other. Jobs without allocations have one life.

    Returns
    -------
    stretches
        ``row`` (of ``jobs``), ``life`` (from 0), ``why``, ``start_s``, ``end_s`` (null: not known),
        ``placement`` (null: not known), ``held_cores`` (as many as asked for where the placement is not
        known), ``again_s`` (the part that set up once more, after a resize too) and ``lost_s`` (the part that
        was thrown away).
    """
    numbered = jobs.with_row_index("row")
    if "placement" not in jobs.columns:
        numbered = numbered.with_columns(placement=pl.lit(None))
    started = numbered.filter(pl.col("start_s").is_not_null())
    if allocations is None or not allocations.height:
        return _one_life(started)
    several = pl.col("job_id").is_in(allocations.get_column("job").unique().implode()).fill_null(value=False)
    return pl.concat(
        [_one_life(started.filter(~several)), _several_lives(numbered.filter(several), allocations)]
    ).sort("row", "start_s", "end_s", nulls_last=True, maintain_order=True)


def placed(jobs: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """Return the stretches at known places by ``job`` (its ``job_id``) and ``node``, with their ``cores``.

    Further columns: ``stretch`` (row of ``held``), ``trace_job``, ``start_s``, ``end_s``.
    """
    numbers = jobs.select("trace_job", pl.col("job_id").alias("job")).with_row_index("row")
    return (
        held.with_row_index("stretch")
        .select("stretch", "row", "start_s", "end_s", "placement")
        .drop_nulls("placement")
        .join(numbers.drop_nulls(), on="row", maintain_order="left")
        .explode("placement", empty_as_null=False)
        .unnest("placement")
    )


def in_stretches(slices: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Add to rows of ``slices`` the ``stretch`` of their job in which they lie; null where it has none.

    Parameters
    ----------
    slices
        Rows with ``job``, ``start_s`` and ``length_s``.
    places
        What ``placed`` returned.
    """
    held = places.select("job", "stretch", pl.col("start_s").alias("at_s")).unique("stretch").sort("at_s")
    firsts = held.unique("job", keep="first", maintain_order=True).select("job", "stretch")
    if firsts.height == held.height:
        return slices.join(firsts, on="job", how="left", maintain_order="left")
    found = (
        slices.with_row_index("order")
        .with_columns(at_s=pl.col("start_s") + pl.col("length_s") / 2)
        .sort("at_s")
        .join_asof(held, on="at_s", by="job", check_sortedness=False)
        .sort("order")
        .drop("order", "at_s")
    )
    # A clock that is a little off puts a slice before the first start.
    early = found.join(firsts, on="job", how="left", suffix="_first", maintain_order="left")
    return early.with_columns(pl.coalesce("stretch", "stretch_first").alias("stretch")).drop("stretch_first")


def _one_life(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.with_columns(
        life=pl.lit(0, pl.UInt32),
        why=pl.lit("start"),
        held_cores=_held_cores(jobs),
        again_s=pl.lit(0.0),
        lost_s=pl.lit(0.0),
    ).select(STRETCHES)


def _several_lives(jobs: pl.DataFrame, allocations: pl.DataFrame) -> pl.DataFrame:
    """Return the stretches of jobs that have allocations."""
    said = jobs.select(
        "row",
        "cores",
        pl.col("job_id").alias("job"),
        pl.col("end_s").alias("ended_s"),
        pl.col("setup_s").alias("all_setup_s"),
        pl.col("wasted_s").alias("all_wasted_s"),
    )
    rows = in_order(allocations).join(said, on="job", maintain_order="left")
    is_last = (pl.col("row") != pl.col("row").shift(-1)).fill_null(value=True)
    held = rows.with_columns(
        start_s=pl.col("from_s"),
        end_s=pl.when(is_last).then(pl.coalesce("to_s", "ended_s")).otherwise("to_s"),
        life=((pl.col("why") != "resize").cum_sum().over("row") - 1).cast(pl.UInt32),
        held_cores=_held_cores(rows),
    )
    return _with_parts(held).select(STRETCHES)


def _held_cores(held: pl.DataFrame) -> pl.Series:
    """Return how many cores each row's placement has; without one, how many were asked for."""
    asked = held.get_column("cores").to_numpy()
    places = held.get_column("placement")
    if places.null_count() == len(places):
        return pl.Series(asked, dtype=pl.Int64)
    texts = places.drop_nulls().explode(empty_as_null=False).struct.field("cores")
    kinds = texts.unique(maintain_order=True)
    counts = np.array([len(parse_cores(text)) for text in kinds.to_list()])
    order = pl.DataFrame({"cores": kinds, "count": counts})
    each = texts.to_frame("cores").join(order, on="cores", how="left", maintain_order="left")
    known = places.is_not_null().to_numpy()
    sizes = places.drop_nulls().list.len().cast(pl.Int64).to_numpy()
    totals = asked.copy()
    totals[known] = np.add.reduceat(
        each.get_column("count").to_numpy(), np.concatenate(([0], np.cumsum(sizes)[:-1]))
    )
    return pl.Series(totals, dtype=pl.Int64)


def _with_parts(held: pl.DataFrame) -> pl.DataFrame:
    """Add ``again_s`` and ``lost_s``: what the stretches say, else what ``jobs`` says of all of them.

    In the latter case a job's set-up is in equal parts at the beginnings of its attempts, and its lost time
    is in the attempts that others followed, and beyond these in its last one, in proportion to their lengths.
    Where no value says what was lost, all of an attempt that a requeue ended is.
    """
    lasting = pl.col("end_s") - pl.col("start_s")
    begins = pl.col("why") != "resize"
    each = pl.when(begins).then(pl.col("all_setup_s") / (pl.col("life").max().over("row") + 1))
    ended_by = pl.col("why").shift(-1).over("row")
    parts = held.with_columns(
        setup_s=pl.when(_is_recorded("setup_s"))
        .then("setup_s")
        .otherwise(pl.when(each < lasting).then(each).when(each.is_not_null()).then(lasting))
        .fill_null(0.0),
        is_followed=pl.col("life") < pl.col("life").max().over("row"),
        ended_by=pl.when(ended_by != "resize").then(ended_by).backward_fill().over("row"),
    ).with_columns(most_s=(lasting - pl.col("setup_s")).clip(lower_bound=0.0))
    followed_s = pl.col("most_s").filter("is_followed").sum().over("row")
    last_s = pl.col("most_s").filter(~pl.col("is_followed")).sum().over("row")
    share = (
        pl.when("is_followed")
        .then(pl.col("all_wasted_s") / followed_s)
        .otherwise((pl.col("all_wasted_s") - followed_s) / last_s)
    )
    guessed = (
        pl.when(pl.col("all_wasted_s").is_not_null())
        .then(share.fill_nan(0.0).clip(0.0, 1.0))
        .when(pl.col("ended_by") == "requeue")
        .then(1.0)
        .otherwise(0.0)
    )
    return parts.with_columns(
        again_s=pl.when((pl.col("life") > 0) | ~begins).then("setup_s").otherwise(0.0),
        lost_s=pl.when(_is_recorded("wasted_s"))
        .then("wasted_s")
        .otherwise(pl.col("most_s") * guessed)
        .fill_null(0.0),
    )


def _is_recorded(column: str) -> pl.Expr:
    """Whether any interval of the job has a value in ``column``."""
    return pl.col(column).is_not_null().any().over("row")


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
        When a run is unfit to judge by: see ``analysis.metrics.fitness``.
    """

    wait_threshold_s: float = WAIT_THRESHOLD_S
    beta_s: float = BETA_S
    most_taken: float = MOST_TAKEN
    most_spread: float = MOST_SPREAD


def with_derived(
    jobs: pl.DataFrame, options: MetricOptions = MetricOptions(), held: pl.DataFrame | None = None
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
