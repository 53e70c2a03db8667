"""Whether ``allocations`` agrees with ``jobs`` and the system; one line tells the first job that does not.

The rows of each table have been checked by themselves before (``record_checks``).
"""

from __future__ import annotations

import polars as pl

from foundation.records.columns import ALLOCATIONS, JOBS
from foundation.records.placement import parse_cores
from foundation.records.record_checks import refuse_first
from foundation.records.run_info import RunInfo

_CLOSE_S = 1e-6
"""Times that are nearer are the same: sums of seconds are not exact."""


def check_agreement(
    jobs: pl.DataFrame, allocations: pl.DataFrame, info: RunInfo, source: str, jobs_source: str
) -> None:
    """Fail unless every allocation is one that its job can have had on this system.

    Parameters
    ----------
    jobs, allocations
        The tables; ``jobs`` may lack its placements.
    info
        The description of the run: nodes, and cores of a node.
    source, jobs_source
        The files of ``allocations`` and of ``jobs``, for the message.

    Raises
    ------
    InputError
        It is not; the message names file, column and job.
    """
    numbered = jobs.filter(pl.col("job_id").is_in(allocations.get_column("job").unique().implode()))
    repeated = pl.col("job_id").is_duplicated()
    refuse_first(
        numbered, repeated, JOBS, jobs_source, "job_id", "is another job's, too, and has allocations"
    )
    ordered = in_order(allocations)
    _check_lives(_with_jobs(numbered, ordered), source)
    if "placement" in jobs.columns:
        _check_last_place(numbered, ordered, source)
    _check_places(allocations, info, source)


def in_order(allocations: pl.DataFrame) -> pl.DataFrame:
    """Return the allocations by job and time; those of one instant as they come."""
    return allocations.sort("job", "from_s", "to_s", nulls_last=True, maintain_order=True)


def _with_jobs(jobs: pl.DataFrame, ordered: pl.DataFrame) -> pl.DataFrame:
    """Return the allocations, each with what ``jobs`` says and the end of the one before."""
    said = jobs.select(
        pl.col("job_id").alias("job"),
        "submit_s",
        pl.col("start_s").alias("started_s"),
        pl.col("end_s").alias("ended_s"),
        is_known=pl.lit(value=True),
    )
    return (
        ordered.drop("placement")
        .join(said, on="job", how="left", maintain_order="left")
        .with_columns(
            is_first=(pl.col("job") != pl.col("job").shift()).fill_null(value=True),
            before_s=pl.when(pl.col("job") == pl.col("job").shift()).then(pl.col("to_s").shift()),
        )
    )


def _check_lives(rows: pl.DataFrame, source: str) -> None:
    lasting = pl.col("to_s") - pl.col("from_s")
    twice = pl.struct("job", "from_s", "to_s", "why").is_duplicated() & (lasting.is_null() | (lasting > 0))
    parts = pl.col("setup_s").fill_null(0) + pl.col("wasted_s").fill_null(0)
    is_first = pl.col("is_first")
    for bad, column, what in (
        (pl.col("is_known").is_null(), "job", "is no job of the jobs table"),
        (pl.col("started_s").is_null(), "job", "has no start_s in the jobs table"),
        (pl.col("from_s") < pl.col("submit_s") - _CLOSE_S, "from_s", "is before the job's submit_s"),
        (twice, "from_s", "is there twice"),
        (
            pl.col("from_s") < pl.col("before_s") - _CLOSE_S,
            "from_s",
            "is before the end of what the job held before",
        ),
        (pl.col("to_s") > pl.col("ended_s") + _CLOSE_S, "to_s", "is after the job's end_s"),
        (~is_first & (pl.col("why") == "start"), "why", "is not the first stretch of its job"),
        (is_first & (pl.col("why") == "resize"), "why", "is the first stretch of its job"),
        (parts > lasting + _CLOSE_S, "wasted_s", "and setup_s are longer than the stretch"),
    ):
        refuse_first(rows, bad, ALLOCATIONS, source, column, what)


def _check_last_place(jobs: pl.DataFrame, ordered: pl.DataFrame, source: str) -> None:
    """Compare what ``jobs`` says that a job held last with its last stretch."""
    is_last = (pl.col("job") != pl.col("job").shift(-1)).fill_null(value=True)
    last = ordered.filter(is_last).select("job", placement=_place())
    said = jobs.select(pl.col("job_id").alias("job"), said=_place())
    both = last.join(said, on="job", how="left", maintain_order="left")
    what = "is not what the jobs table says that the job held last"
    refuse_first(both, pl.col("placement") != pl.col("said"), ALLOCATIONS, source, "placement", what)


def _place() -> pl.Expr:
    """Return a placement as one text that the order of its nodes does not change."""
    entry = pl.element().struct
    entries = pl.format("{}({})", entry.field("node"), entry.field("cores"))
    return pl.col("placement").list.eval(entries).list.sort().list.join(" ")


def _check_places(allocations: pl.DataFrame, info: RunInfo, source: str) -> None:
    """Check that the system has every node, and every node its cores."""
    entries = (
        allocations.select("job", "placement")
        .drop_nulls()
        .explode("placement", empty_as_null=False)
        .unnest("placement")
    )
    nodes, cores = (int(number) for number in info.system[1:].split("C"))
    used = entries.get_column("node").unique(maintain_order=True)
    known = used.head(nodes) if info.node_names is None else pl.Series(info.node_names, dtype=pl.String)
    for column, legal, what in (
        ("node", known, f"is no node of {info.system}"),
        ("cores", _within(entries.get_column("cores"), cores), f"are not cores of a node of {info.system}"),
    ):
        named = entries.select("job", placement=column)
        bad = ~pl.col("placement").is_in(legal.implode())
        refuse_first(named, bad, ALLOCATIONS, source, "placement", what)


def _within(texts: pl.Series, cores: int) -> pl.Series:
    """Return the texts of core ids that a node of so many cores has."""
    return pl.Series(
        [text for text in texts.unique().to_list() if parse_cores(text)[-1] < cores], dtype=pl.String
    )
