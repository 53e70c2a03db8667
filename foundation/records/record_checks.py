"""Checks of rows and tables by the same rules: types, nulls, finite numbers, legal values, order in time.

Every failure is an `InputError` that names the file, the column and the first row concerned.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import polars as pl

from foundation.errors import InputError
from foundation.records.columns import Column, Row, Table, table_of
from foundation.records.placement import PLACEMENT_DTYPE, parse_cores

_PLACEMENTS_AT_ONCE = 32_768
R = TypeVar("R", bound=Row)


def check_record(record: R, source: str) -> R:
    """Return ``record`` with exact types, or fail.

    Parameters
    ----------
    record
        A row, whose types nobody has checked yet.
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


def check_table(frame: pl.DataFrame, table: Table, source: str, *, finished: bool = True) -> None:
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
    for column_name, value, others in table.needs:
        for other in others:
            bad = (pl.col(column_name) == value) & pl.col(other).is_null()
            refuse_first(frame, bad, table, source, other, f"is null although {column_name} is {value}")
    for column_name, value, others in table.forbids:
        for other in others:
            bad = (pl.col(column_name) == value) & pl.col(other).is_not_null()
            refuse_first(frame, bad, table, source, other, f"is known although {column_name} is {value}")
    if table.key is not None:
        repeated = pl.col(table.key).is_duplicated()
        refuse_first(frame, repeated, table, source, table.key, "occurs twice")


def check_columns(schema: pl.Schema, table: Table, source: str) -> None:
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


def _check_column(frame: pl.DataFrame, column: Column, table: Table, source: str, *, finished: bool) -> None:
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
    frame: pl.DataFrame, bad: pl.Expr, table: Table, source: str, column: str, what: str
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


def _row_name(table: Table, record: Row) -> str:
    name = table.key or table.sort[0]
    return f" of {name} {getattr(record, name)!r}"


def _fault(table: Table, record: Row) -> tuple[str, str] | None:
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
    for name, wanted, others in table.needs:
        for other in others:
            if getattr(record, name) == wanted and getattr(record, other) is None:
                return other, f"is null although {name} is {wanted}"
    for name, wanted, others in table.forbids:
        for other in others:
            if getattr(record, name) == wanted and getattr(record, other) is not None:
                return other, f"is known although {name} is {wanted}"
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
