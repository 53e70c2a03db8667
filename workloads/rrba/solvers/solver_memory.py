"""The memory of one rank by solver, known before anything is allocated; in bytes, for legal rank counts."""

from __future__ import annotations

from workloads.rrba.cuts.boxes import box_of
from workloads.rrba.cuts.multipartition import multipartition
from workloads.rrba.cuts.pencils import pencil
from workloads.rrba.cuts.slabs import Grid

_WORD, _COMPONENTS = 8, 5


def bt_bytes(grid: Grid, ranks: int) -> int:
    """Return the memory of state, change and a 5x5 block at each point."""
    state, points = _cells(grid, ranks)
    return _WORD * (state + points * (_COMPONENTS + _COMPONENTS**2))


def sp_bytes(grid: Grid, ranks: int) -> int:
    """Return the memory of state, change and two coefficients for each value."""
    state, points = _cells(grid, ranks)
    return _WORD * (state + 3 * points * _COMPONENTS)


def lu_bytes(grid: Grid, ranks: int) -> int:
    """Return the memory of state, change and forcing."""
    part = pencil(grid, ranks, 0)
    return 3 * _WORD * _COMPONENTS * (grid.planes + 2) * (part.rows + 2) * (part.columns + 2)


def mg_bytes(grid: Grid, ranks: int) -> int:
    """Return the memory of two arrays on every level, and one more on the finest."""
    planes, rows, columns = box_of(ranks, 0).extent(grid.planes)
    finest = (planes + 2) * (rows + 2) * (columns + 2)
    # Each level has an eighth of the points of the one above.
    return _WORD * (finest + 2 * finest * 8 // 7)


def _cells(grid: Grid, ranks: int) -> tuple[int, int]:
    """Return the values of the state with what surrounds it, and the points, of the first rank."""
    cells = multipartition(grid, ranks, 0).cells
    extents = [cell.extent for cell in cells]
    return (
        sum((a + 4) * (b + 4) * (c + 4) * _COMPONENTS for a, b, c in extents),
        sum(cell.points for cell in cells),
    )
