"""The cut of a periodic cube into equal boxes among a power of two of ranks; pure index arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from foundation.errors import UsageError
from foundation.units import counted
from workloads.rrba.cuts.slabs import Grid

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


def check_boxes(grid: Grid, ranks: int) -> None:
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
