"""Checks of rows and tables by the same rules: types, nulls, finite numbers, legal values, order in time.

Every failure is an `InputError` that names the file, the column and the first row concerned.

Whether ``allocations`` agrees with ``jobs`` and the system; one line tells the first job that does not.

The rows of each table have been checked by themselves before (``record_checks``).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import polars as pl

from foundation.errors import InputError
from foundation.records.columns import (
    ALLOCATIONS,
    JOBS,
    PLACEMENT_DTYPE,
    Column,
    Row,
    RunTable,
    parse_cores,
    table_of,
)
from foundation.records.row_types import RunInfo

_PLACEMENTS_AT_ONCE = 32_768
R = TypeVar("R", bound=Row)


def check_record(record: R, source: str) -> R:
    """Return ``record`` with exact types, or fail.

    Parameters
    ----------
    record
        A row whose types are not checked yet.
    source
        The file that it goes to or comes from, for the message.

    Raises
    ------
    InputError
        A value has the wrong type or breaks a rule.
    """
    table = table_of(type(record))
    try:
        checked = msgspec.convert(msgspec.to_builtins(record), type(record))
    except (msgspec.ValidationError, TypeError, OverflowError) as error:
        raise InputError(f"{source}{_row_name(table, record)}: {error}") from error
    fault = _fault(table, checked)
    if fault is not None:
        column, text = fault
        raise InputError(f"{source}: column {column}{_row_name(table, record)}: {text}")
    return checked


def check_table(frame: pl.DataFrame, table: RunTable, source: str, *, finished: bool = True) -> None:
    """Fail unless ``frame`` has exactly the columns and types of ``table`` and obeys its rules.

    Parameters
    ----------
    frame
        The rows; may lack the ``placement`` column only where the caller says so by dropping it from
        ``table``.
    table
        What they must be.
    source
        The file, for the message.
    finished
        Whether every job must have a state.

    Raises
    ------
    InputError
        It does not; the message names the column and the first row.
    """
    check_columns(frame.schema, table, source)
    for column in table.columns:
        _check_column(frame, column, table, source, finished=finished)
    for before, after in table.ascending:
        refuse_first(frame, pl.col(after) < pl.col(before), table, source, after, f"is before {before}")
    for name, value, known, others in table.known:
        for other in others:
            bad = (pl.col(name) == value) & (pl.col(other).is_null() == known)
            what = f"is {'null' if known else 'known'} although {name} is {value}"
            refuse_first(frame, bad, table, source, other, what)
    if table.key is not None:
        repeated = pl.col(table.key).is_duplicated()
        refuse_first(frame, repeated, table, source, table.key, "occurs twice")


def check_columns(schema: pl.Schema, table: RunTable, source: str) -> None:
    """Fail unless the names and types are those of ``table``, and say which are not."""
    expected = table.schema
    for name in schema:
        if name not in expected:
            raise InputError(f"{source}: unknown column {name}; known columns are {', '.join(expected)}")
    for name, dtype in expected.items():
        if name not in schema:
            raise InputError(f"{source}: column {name} is missing")
        if schema[name] != dtype:
            raise InputError(f"{source}: column {name} has type {schema[name]}, not {dtype}")


def _check_column(
    frame: pl.DataFrame, column: Column, table: RunTable, source: str, *, finished: bool
) -> None:
    value = pl.col(column.name)
    series = frame.get_column(column.name)
    if series.null_count() and (not column.nullable or (column.name == "state" and finished)):
        refuse_first(frame, value.is_null(), table, source, column.name, "is null")
    if column.dtype == pl.Float64:
        refuse_first(frame, ~value.is_finite(), table, source, column.name, "is not finite")
    if column.least is not None:
        refuse_first(frame, value < column.least, table, source, column.name, f"is below {column.least:g}")
    if column.above is not None:
        refuse_first(
            frame, value <= column.above, table, source, column.name, f"is not above {column.above:g}"
        )
    if column.values is not None:
        what = f"is not one of {', '.join(column.values)}"
        refuse_first(frame, ~value.is_in(column.values), table, source, column.name, what)
    if column.dtype == PLACEMENT_DTYPE:
        check_placements(series, source, column.name)


def check_placements(series: pl.Series, source: str, column: str) -> None:
    """Fail unless each entry is a node with ascending core ids, and no job names a node twice."""
    for first in range(0, len(series), _PLACEMENTS_AT_ONCE):
        _check_some_placements(series.slice(first, _PLACEMENTS_AT_ONCE), source, column)


def _check_some_placements(series: pl.Series, source: str, column: str) -> None:
    if (series.list.len() == 0).any():
        raise InputError(f"{source}: column {column}: a placement is empty; null is for an unknown one")
    entries = series.drop_nulls().explode(empty_as_null=False).struct.unnest()
    if entries.get_column("node").null_count() or (entries.get_column("node") == "").any():
        raise InputError(f"{source}: column {column}: a node has no name")
    for text in entries.get_column("cores").unique().to_list():
        try:
            parse_cores(text or "")
        except ValueError as error:
            raise InputError(f"{source}: column {column}: {error}") from error
    nodes = series.drop_nulls().list.eval(pl.element().struct.field("node"))
    if (nodes.list.n_unique() != nodes.list.len()).any():
        raise InputError(f"{source}: column {column}: a job has a node twice")


def refuse_first(
    frame: pl.DataFrame, bad: pl.Expr, table: RunTable, source: str, column: str, what: str
) -> None:
    """Raise for the first row where ``bad`` is true; null is not.

    Raises
    ------
    InputError
        There is such a row; the message names the source, the column, the row, its value and ``what``.
    """
    mask = frame.select(bad.fill_null(value=False).alias("bad")).get_column("bad")
    count = mask.sum()
    if not count:
        return
    row = frame.row(int(mask.arg_true()[0]), named=True)
    name = table.key or table.sort[0]
    more = f" (and {count - 1} more)" if count > 1 else ""
    raise InputError(f"{source}: column {column} of {name} {row[name]}: {row[column]!r} {what}{more}")


def _row_name(table: RunTable, record: Row) -> str:
    name = table.key or table.sort[0]
    return f" of {name} {getattr(record, name)!r}"


def _fault(table: RunTable, record: Row) -> tuple[str, str] | None:
    """Return the column and the rule that a well-typed record breaks, or None."""
    value: Any
    for column in table.columns:
        value = getattr(record, column.name)
        if isinstance(value, float) and not math.isfinite(value):
            return column.name, f"{value!r} is not finite"
    for before, after in table.ascending:
        least, value = getattr(record, before), getattr(record, after)
        if least is not None and value is not None and value < least:
            return after, f"{value!r} is before {before}"
    for name, wanted, known, others in table.known:
        for other in others:
            if getattr(record, name) == wanted and (getattr(record, other) is None) == known:
                return other, f"is {'null' if known else 'known'} although {name} is {wanted}"
    return _placement_fault(record)


def _placement_fault(record: Row) -> tuple[str, str] | None:
    placement = getattr(record, "placement", None)
    if placement is None:
        return None
    if not placement:
        return "placement", "is empty; null is for an unknown one"
    if len({entry.node for entry in placement}) != len(placement):
        return "placement", "has a node twice"
    for entry in placement:
        ids = entry.cores
        if not entry.node or not ids or ids[0] < 0 or any(b <= a for a, b in pairwise(ids)):
            return "placement", f"{entry.node!r} with cores {list(ids)} is not a node with ascending core ids"
    return None


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
    _check_attempts(_with_jobs(numbered, ordered), source)
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


def _check_attempts(rows: pl.DataFrame, source: str) -> None:
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
