"""The tables' columns, derived from the row structs: type, unit, null rule, bounds, rules between columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import polars as pl

from foundation.records.placement import PLACEMENT_DTYPE
from foundation.records.row_types import AllocationRecord, HostRecord, JobRecord, Placement, SliceRecord

Row = JobRecord | AllocationRecord | SliceRecord | HostRecord

_DTYPES: dict[Any, pl.DataType | type[pl.DataType]] = {
    int: pl.Int64,
    float: pl.Float64,
    str: pl.String,
    tuple[Placement, ...]: PLACEMENT_DTYPE,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Parameters
    ----------
    name
        Its name.
    dtype
        Its polars type, which fixes the Parquet type.
    nullable
        Whether null ("not known") is legal.
    default
        The value of a row that does not say; None if there is no default or it is null.
    values
        The legal texts, or None if any is.
    least, above
        Inclusive and exclusive lower bound, or None.
    unit
        The unit, or None.
    meaning
        What it means.
    """

    name: str
    dtype: pl.DataType | type[pl.DataType]
    nullable: bool
    default: object
    values: tuple[str, ...] | None
    least: float | None
    above: float | None
    unit: str | None
    meaning: str


@dataclass(frozen=True, slots=True)
class RunTable:
    """One table of a RUN.

    Parameters
    ----------
    name
        Its name; the file is ``name.parquet``.
    row
        The struct of a row.
    key
        The column whose values are unique, or None.
    sort
        The columns that order its rows.
    columns
        Its columns, in order.
    ascending
        Pairs of columns of which the second is never below the first, where both are known.
    needs
        (column, value, others): where ``column`` has ``value``, the others are known.
    forbids
        (column, value, others): where ``column`` has ``value``, the others are null.
    later
        Columns that files of earlier versions lack; they are null there.
    """

    name: str
    row: type[Row]
    key: str | None
    sort: tuple[str, ...]
    columns: tuple[Column, ...]
    ascending: tuple[tuple[str, str], ...] = ()
    needs: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    forbids: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    later: tuple[str, ...] = ()

    @property
    def schema(self) -> pl.Schema:
        """The polars schema."""
        return pl.Schema({column.name: column.dtype for column in self.columns})

    def without(self, name: str) -> RunTable:
        """Return the table less one column."""
        return replace(self, columns=tuple(column for column in self.columns if column.name != name))

    @property
    def file_name(self) -> str:
        """Name of its file in the RUN."""
        return f"{self.name}.parquet"


def columns_of(row: type[msgspec.Struct]) -> tuple[Column, ...]:
    """Derive the columns from the annotations of a row struct (or of one of ``run.json``'s)."""
    hints = get_type_hints(row, include_extras=True)
    fields = {field.name: field for field in msgspec.structs.fields(row)}
    return tuple(_column(name, hints[name], fields[name]) for name in row.__struct_fields__)


def _column(name: str, hint: Any, field: msgspec.structs.FieldInfo) -> Column:
    hint, metas = _unwrapped(hint)
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    plain, inner = _unwrapped(next(option for option in options if option is not NoneType))
    metas += inner
    values = get_args(plain) if get_origin(plain) is Literal else None
    return Column(
        name=name,
        dtype=_DTYPES.get(str if values else plain, pl.Object),
        nullable=NoneType in options,
        default=None if field.default is msgspec.NODEFAULT else field.default,
        values=values,
        least=next((meta.ge for meta in metas if meta.ge is not None), None),
        above=next((meta.gt for meta in metas if meta.gt is not None), None),
        unit=next((meta.extra["unit"] for meta in metas if meta.extra), None),
        meaning=next((meta.description for meta in metas if meta.description), ""),
    )


def _unwrapped(hint: Any) -> tuple[Any, list[msgspec.Meta]]:
    """Split an annotated type into the type and what is said about it."""
    if get_origin(hint) is not Annotated:
        return hint, []
    plain, *metas = get_args(hint)
    return plain, metas


def table_of(row: type[msgspec.Struct]) -> RunTable:
    """Return the table whose rows are ``row``."""
    return next(table for table in TABLES if table.row is row)


JOBS = RunTable(
    name="jobs",
    row=JobRecord,
    key="trace_job",
    sort=("trace_job",),
    columns=columns_of(JobRecord),
    ascending=(
        ("submit_s", "start_s"),
        ("submit_s", "end_s"),
        ("start_s", "end_s"),
        ("min_nodes", "max_nodes"),
        ("min_nodes", "preferred_nodes"),
        ("preferred_nodes", "max_nodes"),
    ),
    needs=(("state", "COMPLETED", ("start_s", "end_s")),),
    forbids=(("state", "REFUSED", ("start_s", "end_s")),),
    later=("steps", "step_s", "steps_cpu_s", "first_step_s", "last_step_s"),
)
ALLOCATIONS = RunTable(
    name="allocations",
    row=AllocationRecord,
    key=None,
    sort=("job", "from_s"),
    columns=columns_of(AllocationRecord),
    ascending=(("from_s", "to_s"),),
    later=("setup_s", "wasted_s"),
)
SLICES = RunTable(
    name="slices",
    row=SliceRecord,
    key=None,
    sort=("slice", "node", "job"),
    columns=columns_of(SliceRecord),
)
HOST = RunTable(
    name="host",
    row=HostRecord,
    key=None,
    sort=("at_s", "host"),
    columns=columns_of(HostRecord),
)
TABLES = (JOBS, ALLOCATIONS, SLICES, HOST)
