"""The cut of a box into pencils, whole along its planes axis, for LU's pipelined wavefront.

NPB 3.4's rule for LU: n1 x n2 ranks with n1 / 2 <= n2 <= n1. So 1, 2, 4, 6, 8, 9, 12, 15, 16 ... ranks, and
not 3, 5, 7 or 10. Rows are cut into n1 parts, columns into n2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foundation.errors import UsageError
from foundation.units import counted
from workloads.rrba.cuts.slabs import Grid


@dataclass(frozen=True, slots=True)
class Pencil:
    """One rank's part and its neighbours.

    Attributes
    ----------
    first_row, rows, first_column, columns
        The part.
    north, south, west, east
        The rank that has the rows before and after, the columns before and after; None at a wall.
    """

    first_row: int
    rows: int
    first_column: int
    columns: int
    north: int | None
    south: int | None
    west: int | None
    east: int | None


def rank_grid(ranks: int) -> tuple[int, int]:
    """Return n1 and n2, as equal as they can be.

    Raises
    ------
    UsageError
        There are none with n1 / 2 <= n2 <= n1.
    """
    second = next(number for number in range(math.isqrt(ranks), 0, -1) if ranks % number == 0)
    first = ranks // second
    if first > 2 * second:
        raise UsageError(
            f"lu runs on n1 x n2 ranks with n1/2 <= n2 <= n1 (1, 2, 4, 6, 8, 9, 12 ...), not on {ranks}"
        )
    return first, second


def check_pencils(grid: Grid, ranks: int) -> None:
    """Check that ``ranks`` is legal and none of them is left without points.

    Raises
    ------
    UsageError
        It is not so.
    """
    first, second = rank_grid(ranks)
    if grid.rows < first or grid.columns < second:
        raise UsageError(
            f"lu on {counted(ranks, 'rank')} needs {counted(first, 'row')} and {counted(second, 'column')}; "
            f"the grid is {grid}"
        )


def pencil(grid: Grid, ranks: int, rank: int) -> Pencil:
    """Return the part of ``rank``."""
    first, second = rank_grid(ranks)
    row, column = divmod(rank, second)
    first_row, rows = _part(grid.rows, first, row)
    first_column, columns = _part(grid.columns, second, column)
    return Pencil(
        first_row,
        rows,
        first_column,
        columns,
        north=rank - second if row > 0 else None,
        south=rank + second if row < first - 1 else None,
        west=rank - 1 if column > 0 else None,
        east=rank + 1 if column < second - 1 else None,
    )


def _part(edge: int, parts: int, index: int) -> tuple[int, int]:
    each, remainder = divmod(edge, parts)
    return index * each + min(index, remainder), each + (index < remainder)
