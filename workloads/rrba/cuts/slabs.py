"""The grid of a job and each rank's slab of it.

The grid belongs to the job, not to the rank (strong scaling): more ranks share the same points, the answer
is the same, and memory does not grow with the ranks. It is cut along its first axis only, so that
what neighbours exchange is whole planes, contiguous in memory.
"""

from __future__ import annotations

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
class Grid:
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


def parse_grid(text: str) -> Grid:
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
    grid = Grid(planes, int(match[2] or planes), int(match[3] or planes))
    edges = (grid.planes, grid.rows, grid.columns)
    if not 1 <= min(edges) <= max(edges) <= EDGE_LIMIT or grid.points > POINT_LIMIT:
        raise UsageError(
            f"--grid is {text!r}; an edge is from 1 to {EDGE_LIMIT}, the whole at most 2^40 points"
        )
    return grid


def default_grid(ranks: int) -> Grid:
    """Return the grid of a job that names none: 64 cubed up to 8 ranks, then 8 planes a rank."""
    return Grid(max(DEFAULT_EDGE, DEFAULT_PLANES_PER_RANK * ranks), DEFAULT_EDGE, DEFAULT_EDGE)


def slab_of(grid: Grid, ranks: int, rank: int) -> Slab:
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
    each, remainder = divmod(grid.planes, ranks)
    return Slab(rank * each + min(rank, remainder), each + (rank < remainder))
