"""The memory of one rank by solver, known before anything is allocated, and whether this host has it.

In bytes, for legal rank counts. What does not fit is refused before it is touched and the kernel kills for
it.
"""

from __future__ import annotations

from pathlib import Path

from foundation.errors import HostError
from workloads.rrba.cuts.boxes import box_of
from workloads.rrba.cuts.multipartition import multipartition
from workloads.rrba.cuts.pencils import pencil
from workloads.rrba.cuts.slabs import Grid
from workloads.task.host_memory import MEMORY, available_bytes

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


def check_fits(grid: Grid, rank_bytes: int, ranks_here: int = 1, memory: Path = MEMORY) -> None:
    """Check that this host has ``rank_bytes`` for each of the job's ``ranks_here`` ranks on it.

    Raises
    ------
    HostError
        It has not; the message says how much there is. A host that does not tell is trusted.
    """
    available = available_bytes(memory)
    if available is not None and rank_bytes * ranks_here > available:
        raise HostError(
            f"grid {grid} needs {rank_bytes >> 20} MiB a rank, {ranks_here} of them here, and "
            f"{available >> 20} MiB are available; choose a smaller --grid or --class, or more hosts"
        )
