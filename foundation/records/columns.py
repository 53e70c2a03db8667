"""The tables' columns, and placements in them.

The tables' columns, derived from the row structs: type, unit, null rule, bounds, rules between columns.

Placements as text and as arrays: core ids in Slurm's notation, and the compact form for large runs.

A table stores a placement as a list of (node, cores) with the core ids of a node as a text such as
``0-3,7``, the notation of Slurm's ``CPU_IDs``. A list of numbers would be 225 million values for the
CEA-Curie trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from foundation.errors import InputError
from foundation.id_list import spans_of
from foundation.records.row_types import AllocationRecord, HostRecord, JobRecord, Placement, SliceRecord

PLACEMENT_DTYPE = pl.List(pl.Struct({"node": pl.String, "cores": pl.String}))
"""Type of a ``placement`` column."""

_JOBS_AT_ONCE = 32_768
MOST_CORES = 1 << 20
"""Every core id is below this; Slurm counts the CPUs of a node in 16 bits."""


@lru_cache(maxsize=65_536)
def parse_cores(text: str) -> tuple[int, ...]:
    """Return the core ids of a text in Slurm's notation, as ``foundation.id_list.write_ids`` spells it.

    Raises
    ------
    ValueError
        The text is no such list, its ids do not ascend, or there are no so many cores.
    """
    try:
        spans = spans_of(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a list of core ids such as 0-3,7: {error}") from error
    if any(before[-1] >= span[0] for before, span in pairwise(spans)):
        raise ValueError(f"the core ids {text!r} do not ascend")
    if text != ",".join(str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in spans):
        raise ValueError(f"{text!r} is not a list of core ids such as 0-3,7: it is spelled another way")
    if spans[-1][-1] >= MOST_CORES:
        raise ValueError(f"the core ids {text!r} go beyond the {MOST_CORES} that a node may have")
    return tuple(chain.from_iterable(spans))


@dataclass(frozen=True, slots=True)
class PlacementArrays:
    """The placements of many jobs as arrays, for runs too large for a Python object each.

    Parameters
    ----------
    offsets
        Shape (jobs + 1,), int64: the entries of job ``i`` are ``offsets[i]`` to ``offsets[i + 1]``. A job
        without entries has no placement (null).
    node
        Shape (entries,): index into ``node_names``; with ``count``, of the first node of a range.
    cores
        Shape (entries,): index into ``core_sets``.
    node_names
        Name of each node.
    core_sets
        The sets of core ids that occur, in Slurm's notation.
    count
        Shape (entries,): of how many neighbours, one after the other in ``node_names``, an entry tells; each
        has the same cores. None: of one.
    """

    offsets: npt.NDArray[np.int64]
    node: npt.NDArray[np.integer]
    cores: npt.NDArray[np.integer]
    node_names: Sequence[str]
    core_sets: Sequence[str]
    count: npt.NDArray[np.integer] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def check(self, source: str) -> None:
        """Fail unless the arrays fit together and no job has a node twice.

        Raises
        ------
        InputError
            They do not; the message begins with ``source``.
        """
        offsets, entries = self.offsets, len(self.node)
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != entries or (np.diff(offsets) < 0).any():
            raise InputError(f"{source}: column placement: offsets do not run from 0 to {entries} upwards")
        for values, names, what in (
            (self.node, self.node_names, "node"),
            (self.cores, self.core_sets, "core set"),
        ):
            if len(values) != entries or (entries and not 0 <= values.min() <= values.max() < len(names)):
                raise InputError(
                    f"{source}: column placement: {what} indices are not {entries} of 0 to {len(names) - 1}"
                )
        for text in self.core_sets:
            try:
                parse_cores(text)
            except ValueError as error:
                raise InputError(f"{source}: column placement: {error}") from error
        if not all(self.node_names) or len(set(self.node_names)) != len(self.node_names):
            raise InputError(f"{source}: column placement: the names of the nodes are empty or repeated")
        self._check_counts(source)
        for first in range(0, len(self), _JOBS_AT_ONCE):
            some = offsets[first : first + _JOBS_AT_ONCE + 1]
            own = slice(int(some[0]), int(some[-1]))
            jobs = np.repeat(np.arange(len(some) - 1), np.diff(some))
            begins = jobs * len(self.node_names) + self.node[own]
            order = np.argsort(begins)
            ends = (begins + (1 if self.count is None else self.count[own]))[order]
            if (begins[order][1:] < ends[:-1]).any():
                raise InputError(f"{source}: column placement: a job has a node twice")

    def _check_counts(self, source: str) -> None:
        if self.count is None or not len(self.node):
            return
        whole = len(self.count) == len(self.node) and self.count.min() > 0
        if not whole or (self.node.astype(np.int64) + self.count).max() > len(self.node_names):
            raise InputError(f"{source}: column placement: ranges of nodes are empty or leave the nodes")

    def reorder(self, order: npt.NDArray[np.integer]) -> PlacementArrays:
        """Return the placements of some or all jobs in another order (``order[i]`` is the old index)."""
        counts = np.diff(self.offsets)[order]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        entries = np.repeat(self.offsets[:-1][order] - offsets[:-1], counts) + np.arange(offsets[-1])
        return PlacementArrays(
            offsets,
            self.node[entries],
            self.cores[entries],
            self.node_names,
            self.core_sets,
            None if self.count is None else self.count[entries],
        )

    def column(self, first: int = 0, last: int | None = None) -> pl.Series:
        """Return the jobs ``first`` to ``last`` as a ``placement`` column."""
        offsets = self.offsets[first : len(self) + 1 if last is None else last + 1]
        entries = slice(int(offsets[0]), int(offsets[-1]))
        jobs = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        node, cores = self.node[entries], self.cores[entries]
        if self.count is not None:
            count = self.count[entries].astype(np.int64)
            within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            jobs, cores, node = (np.repeat(values, count) for values in (jobs, cores, node))
            node = node + within
        listed = (
            pl.DataFrame(
                {
                    "job": jobs,
                    "node": pl.Series(self.node_names, dtype=pl.String).gather(
                        pl.Series(node.astype(np.uint32))
                    ),
                    "cores": pl.Series(self.core_sets, dtype=pl.String).gather(
                        pl.Series(cores.astype(np.uint32))
                    ),
                }
            )
            .group_by("job", maintain_order=True)
            .agg(pl.struct("node", "cores").alias("placement"))
        )
        every = pl.DataFrame({"job": np.arange(len(offsets) - 1)})
        joined = every.join(listed, on="job", how="left", maintain_order="left")
        return joined.get_column("placement").cast(PLACEMENT_DTYPE)


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
    known
        (column, value, known, others): where ``column`` has ``value``, the others are known, or else null.
    later
        Columns that files of earlier versions lack; they are null there.
    """

    name: str
    row: type[Row]
    key: str | None
    sort: tuple[str, ...]
    columns: tuple[Column, ...]
    ascending: tuple[tuple[str, str], ...] = ()
    known: tuple[tuple[str, str, bool, tuple[str, ...]], ...] = ()
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
    known=(
        ("state", "COMPLETED", True, ("start_s", "end_s")),
        ("state", "REFUSED", False, ("start_s", "end_s")),
    ),
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
    name="slices", row=SliceRecord, key=None, sort=("slice", "node", "job"), columns=columns_of(SliceRecord)
)
HOST = RunTable(name="host", row=HostRecord, key=None, sort=("at_s", "host"), columns=columns_of(HostRecord))
TABLES = (JOBS, ALLOCATIONS, SLICES, HOST)
