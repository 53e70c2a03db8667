"""The grid of a job and each rank's slab of it.

The grid belongs to the job, not to the rank (strong scaling): more ranks share the same points, the answer
is the same, and memory does not grow with the ranks. It is cut along its first axis only, so that
what neighbours exchange is whole planes, contiguous in memory.

The multipartition of a box among a square number of ranks, for solves along lines of all three axes.

With q^2 ranks the box is cut into q^3 cells, and each rank has q of them along a diagonal: in every slab
of cells across any axis each rank has exactly one. While a solve sweeps slab after slab, every rank is at
work in each, and hands on to one and the same neighbour. Source: Naik, A scalable implementation of the NAS
parallel benchmark BT on distributed memory systems, IBM Systems Journal 34(2), 1995.

Pure index arithmetic. Axes are 0 planes, 1 rows, 2 columns.

The cut of a box into pencils, whole along its planes axis, for LU's pipelined wavefront.

NPB 3.4's rule for LU: n1 x n2 ranks with n1 / 2 <= n2 <= n1. So 1, 2, 4, 6, 8, 9, 12, 15, 16 ... ranks, and
not 3, 5, 7 or 10. Rows are cut into n1 parts, columns into n2.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from foundation.errors import UsageError
from foundation.units import counted

# A step of 64 cubed is about a millisecond on one core of 2020s hardware: long against the exchange of
# planes, short against a scheduler's time slice.
DEFAULT_EDGE = 64
# Beyond eight ranks the default grid grows with them, so that a step stays above a tenth of a millisecond.
DEFAULT_PLANES_PER_RANK = 8
EDGE_LIMIT = 1_000_000
POINT_LIMIT = 2**40


@dataclass(frozen=True, slots=True, order=True)
class PointGrid:
    """Interior points of a job's grid along its three axes; planes are cut among the ranks."""

    planes: int
    rows: int
    columns: int

    def __str__(self) -> str:
        """Write the grid as the command line reads it."""
        return f"{self.planes}x{self.rows}x{self.columns}"

    @property
    def points(self) -> int:
        """Interior points in all."""
        return self.planes * self.rows * self.columns


@dataclass(frozen=True, slots=True)
class Slab:
    """The planes of one rank: ``planes`` of them, the first being number ``first`` of the grid, from 0."""

    first: int
    planes: int


def parse_grid(text: str) -> PointGrid:
    """Read ``64`` (a cube) or ``128x64x64``.

    Raises
    ------
    UsageError
        It is neither, or too large to be meant.
    """
    match = re.fullmatch(r"([0-9]{1,7})(?:x([0-9]{1,7})x([0-9]{1,7}))?", text)
    if match is None:
        raise UsageError(f"--grid is {text!r}; expected an edge such as 64, or 128x64x64")
    planes = int(match[1])
    grid = PointGrid(planes, int(match[2] or planes), int(match[3] or planes))
    edges = (grid.planes, grid.rows, grid.columns)
    if not 1 <= min(edges) <= max(edges) <= EDGE_LIMIT or grid.points > POINT_LIMIT:
        raise UsageError(
            f"--grid is {text!r}; an edge is from 1 to {EDGE_LIMIT}, the whole at most 2^40 points"
        )
    return grid


def default_grid(ranks: int) -> PointGrid:
    """Return the grid of a job that names none: 64 cubed up to 8 ranks, then 8 planes a rank."""
    return PointGrid(max(DEFAULT_EDGE, DEFAULT_PLANES_PER_RANK * ranks), DEFAULT_EDGE, DEFAULT_EDGE)


def slab_of(grid: PointGrid, ranks: int, rank: int) -> Slab:
    """Return the planes of ``rank``: as many for each, the first ranks take one more of the remainder.

    Raises
    ------
    UsageError
        There are more ranks than planes.
    """
    if ranks > grid.planes:
        raise UsageError(
            f"{counted(ranks, 'rank')} for {grid.planes} planes of grid {grid}; each rank needs one at least"
        )
    return Slab(*_span(grid.planes, ranks, rank))


Triple = tuple[int, int, int]


def rank_box(ranks: int) -> Triple:
    """Return the number of cuts along planes, rows and columns: halved in turn.

    Raises
    ------
    UsageError
        ``ranks`` is no power of two.
    """
    if ranks & (ranks - 1):
        raise UsageError(f"mg runs on a power of two of ranks (1, 2, 4, 8 ...), not on {ranks}")
    parts = [1, 1, 1]
    for turn in range(ranks.bit_length() - 1):
        parts[turn % 3] *= 2
    return parts[0], parts[1], parts[2]


def check_boxes(grid: PointGrid, ranks: int) -> None:
    """Check that grid and ``ranks`` are legal together.

    Raises
    ------
    UsageError
        The grid is no cube with a power of two as its edge, or the ranks are none or too many for it.
    """
    edge, most = grid.planes, max(rank_box(ranks))
    if not edge == grid.rows == grid.columns or edge & (edge - 1) or edge < 8:
        raise UsageError(f"mg needs a cube with an edge of 8, 16, 32, 64 ..., not a grid of {grid}")
    if edge < 2 * most:
        raise UsageError(
            f"mg on {counted(ranks, 'rank')} needs an edge of {2 * most} at least; the grid is {grid}"
        )


@dataclass(frozen=True, slots=True)
class Box:
    """One rank's place: cuts along each axis, and which part this is."""

    parts: Triple
    place: Triple

    def extent(self, edge: int) -> Triple:
        """Return the points along each axis of this rank's part of a cube with ``edge``."""
        planes, rows, columns = (edge // part for part in self.parts)
        return planes, rows, columns

    def first(self, edge: int) -> Triple:
        """Return the first point of this rank's part, from 0."""
        planes, rows, columns = (at * (edge // part) for at, part in zip(self.place, self.parts, strict=True))
        return planes, rows, columns

    def neighbour(self, axis: int, ahead: int) -> int:
        """Return the rank whose part is ``ahead`` (1 or -1) along ``axis``; the box closes on itself."""
        place = list(self.place)
        place[axis] = (place[axis] + ahead) % self.parts[axis]
        return (place[0] * self.parts[1] + place[1]) * self.parts[2] + place[2]


def box_of(ranks: int, rank: int) -> Box:
    """Return the place of ``rank``."""
    parts = rank_box(ranks)
    plane, rest = divmod(rank, parts[1] * parts[2])
    row, column = divmod(rest, parts[2])
    return Box(parts, (plane, row, column))


@dataclass(frozen=True, slots=True)
class RankCell:
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
    cells: tuple[RankCell, ...]
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


def check_cells(grid: PointGrid, ranks: int, app: str, least: int = 2) -> None:
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


def multipartition(grid: PointGrid, ranks: int, rank: int) -> Multipartition:
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
        cells.append(RankCell(where, (plane, its_row, its_column), (planes, rows, columns)))
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


def check_pencils(grid: PointGrid, ranks: int) -> None:
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


def pencil(grid: PointGrid, ranks: int, rank: int) -> Pencil:
    """Return the part of ``rank``."""
    first, second = rank_grid(ranks)
    row, column = divmod(rank, second)
    first_row, rows = _span(grid.rows, first, row)
    first_column, columns = _span(grid.columns, second, column)
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
