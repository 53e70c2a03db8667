"""Records: what has a name for each of its fields, once for compiled kernels and once for plain Python.

A record is declared once, as a slotted dataclass of integers. A *table* of them is a structured array for
compiled kernels (``dtype_of``) and a list of objects in plain Python; either way ``runs[job].left`` is a
field of one record, and no field can be taken from the wrong table. Bit sets and lists of numbers are arrays
for kernels; in plain Python, where numpy's scalars are slow, they are lists (one index) and dictionaries.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar, cast, get_type_hints

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]

Short: TypeAlias = Annotated[int, np.int32]
"""A field that takes half the memory: for tables that have millions of records."""

RecordT = TypeVar("RecordT")
RecordT_co = TypeVar("RecordT_co", covariant=True)


class RecordTable(Protocol[RecordT_co]):
    """Records by index."""

    def __getitem__(self, index: int, /) -> RecordT_co: ...

    def __len__(self) -> int: ...


class IntegerRow(Protocol):
    """Integers by one index."""

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...

    def __len__(self) -> int: ...


class IntegerGrid(Protocol):
    """Integers by two or three indices."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How many of each index there are."""

    def __getitem__(self, index: tuple[int, ...], /) -> int: ...

    def __setitem__(self, index: tuple[int, ...], value: int, /) -> None: ...


class PlainGrid(dict[tuple[int, ...], int]):
    """A grid in plain Python; what was never written is 0."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def __missing__(self, index: tuple[int, ...]) -> int:
        return 0


class LazyTable(dict[int, RecordT]):
    """A large table in plain Python; its records are made when they are first looked at."""

    def __init__(self, record: type[RecordT], size: int) -> None:
        super().__init__()
        self._record = record
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __missing__(self, index: int) -> RecordT:
        self[index] = record = self._record()
        return record


def dtype_of(record: type[object]) -> np.dtype[np.void]:
    """Return the type of a structured array of such records."""
    hints = get_type_hints(record, include_extras=True)
    return np.dtype(
        [
            (field.name, getattr(hints[field.name], "__metadata__", (np.int64,))[0])
            for field in _fields(record)
        ],
        align=True,
    )


def _fields(record: type[object]) -> tuple[dataclasses.Field[int], ...]:
    return dataclasses.fields(cast("Any", record))


class StateAllocator:
    """Makes the tables of a state, either for compiled kernels or for plain Python.

    Parameters
    ----------
    compiled
        For which of the two.
    """

    def __init__(self, *, compiled: bool) -> None:
        self.compiled = compiled

    def table(
        self, record: type[RecordT], size: int, *, lazily: bool = False, **columns: Ints | int
    ) -> RecordTable[RecordT]:
        """Return ``size`` records with their defaults, but for fields whose values are given.

        ``lazily``, without values: most of them will not be used.
        """
        if lazily and not self.compiled:
            return LazyTable(record, size)
        if not self.compiled:
            records = [record() for _ in range(size)]
            for name, values in columns.items():
                each = [values] * size if isinstance(values, int) else values.tolist()
                for entry, value in zip(records, each, strict=True):
                    setattr(entry, name, value)
            return records
        table = np.zeros(size, dtype=dtype_of(record))
        for field in _fields(record):
            value = columns.pop(field.name, field.default)
            if not isinstance(value, int) or value != 0:
                table[field.name] = value
        if columns:
            raise AttributeError(f"a {record.__name__} has no {', '.join(columns)}")
        return cast("RecordTable[RecordT]", table)

    def row(self, values: Ints | Sequence[int]) -> IntegerRow:
        """Return the values, by one index."""
        array = np.array(values, dtype=np.int64)
        return array if self.compiled else cast("IntegerRow", array.tolist())

    def zeros(self, size: int) -> IntegerRow:
        """Return so many zeros."""
        return self.row(np.zeros(size, dtype=np.int64))

    def grid(self, *shape: int, short: bool = False) -> IntegerGrid:
        """Return a grid of zeros."""
        return np.zeros(shape, dtype=np.int32 if short else np.int64) if self.compiled else PlainGrid(shape)

    def filled(self, values: Ints) -> IntegerGrid:
        """Return a grid with these values."""
        if self.compiled:
            return values
        grid = PlainGrid(values.shape)
        grid.update((index, int(value)) for index, value in np.ndenumerate(values) if value)
        return grid


def column(table: RecordTable[RecordT], name: str) -> Ints:
    """Return one field of all records of either kind of table."""
    if isinstance(table, np.ndarray):
        values: Ints = np.ascontiguousarray(table[name], dtype=np.int64)
        return values
    return np.array([getattr(table[index], name) for index in range(len(table))], dtype=np.int64)


def column_view(table: RecordTable[RecordT], name: str) -> npt.NDArray[np.integer]:
    """Return one field of all records, without a copy where the table is one for kernels."""
    return table[name] if isinstance(table, np.ndarray) else column(table, name)


def array_of(grid: IntegerGrid) -> Ints:
    """Return either kind of grid as an array."""
    if isinstance(grid, PlainGrid):
        values = np.zeros(math.prod(grid.shape), dtype=np.int64).reshape(grid.shape)
        for index, value in grid.items():
            values[index] = value
        return values
    return cast("Ints", grid)


def only_record(record: type[RecordT], table: RecordTable[RecordT]) -> RecordT:
    """Return a plain copy of the one record of either kind of table."""
    return record(**{field.name: int(column(table, field.name)[0]) for field in _fields(record)})
