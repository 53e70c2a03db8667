"""The multipartition of a box among a square number of ranks, for solves along lines of all three axes.

With q^2 ranks the box is cut into q^3 cells, and each rank has q of them along a diagonal: in every slab
of cells across any axis each rank has exactly one. While a solve sweeps slab after slab, every rank is at
work in each, and hands on to one and the same neighbour. Source: Naik, A scalable implementation of the NAS
parallel benchmark BT on distributed memory systems, IBM Systems Journal 34(2), 1995.

Pure index arithmetic. Axes are 0 planes, 1 rows, 2 columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foundation.errors import UsageError
from foundation.units import counted
from workloads.rrba.cuts.slabs import Grid


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank's piece: its place among the cells, its first point and its extent along each axis."""

    place: tuple[int, int, int]
    first: tuple[int, int, int]
    extent: tuple[int, int, int]

    @property
    def points(self) -> int:
        """Points in all."""
        return math.prod(self.extent)


@dataclass(frozen=True, slots=True)
class Multipartition:
    """What one rank has and whom it meets.

    Attributes
    ----------
    cuts
        q, the number of slabs along each axis.
    cells
        q cells; cell c lies in slab c of axis 0.
    above, below
        By axis, the rank that has the cells before and after this one's; for q of 1 the rank itself.
    """

    cuts: int
    cells: tuple[Cell, ...]
    above: tuple[int, int, int]
    below: tuple[int, int, int]

    def cell_of_slab(self, axis: int, slab: int) -> int:
        """Return the index of the one cell of this rank in ``slab`` across ``axis``."""
        return next(index for index, cell in enumerate(self.cells) if cell.place[axis] == slab)


def square_root(ranks: int, app: str) -> int:
    """Return q for q^2 ranks.

    Raises
    ------
    UsageError
        ``ranks`` is no square.
    """
    root = math.isqrt(ranks)
    if root * root != ranks:
        raise UsageError(f"{app} runs on a square number of ranks (1, 4, 9, 16 ...), not on {ranks}")
    return root


def check_cells(grid: Grid, ranks: int, app: str, least: int = 2) -> None:
    """Check that ``ranks`` is a square and each cell has ``least`` points along each axis.

    Raises
    ------
    UsageError
        It is not so.
    """
    cuts = square_root(ranks, app)
    if min(grid.planes, grid.rows, grid.columns) < least * cuts:
        raise UsageError(
            f"{app} on {counted(ranks, 'rank')} needs {least * cuts} points along each axis; the "
            f"grid is {grid}"
        )


def multipartition(grid: Grid, ranks: int, rank: int) -> Multipartition:
    """Return the part of ``rank``; ``ranks`` is a square."""
    cuts = math.isqrt(ranks)
    row, column = divmod(rank, cuts)

    def owner(its_row: int, its_column: int) -> int:
        return its_row % cuts * cuts + its_column % cuts

    edges = (grid.planes, grid.rows, grid.columns)
    cells = []
    for slab in range(cuts):
        where = (slab, (row + slab) % cuts, (column + slab) % cuts)
        (plane, planes), (its_row, rows), (its_column, columns) = (
            _span(edge, cuts, at) for edge, at in zip(edges, where, strict=True)
        )
        cells.append(Cell(where, (plane, its_row, its_column), (planes, rows, columns)))
    return Multipartition(
        cuts,
        tuple(cells),
        above=(owner(row + 1, column + 1), owner(row - 1, column), owner(row, column - 1)),
        below=(owner(row - 1, column - 1), owner(row + 1, column), owner(row, column + 1)),
    )


def _span(edge: int, parts: int, index: int) -> tuple[int, int]:
    """Return first point and number of points of part ``index``; the first parts have one point more."""
    each, remainder = divmod(edge, parts)
    return index * each + min(index, remainder), each + (index < remainder)
