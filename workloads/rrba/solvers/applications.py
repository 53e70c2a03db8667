"""The applications by name: their problem sizes, memory and solvers.

To add one: write a module with a subclass of ``StepSolver`` and enter it in ``APPLICATIONS``. Choosing
the number of steps, reporting, calibration and termination are the program's and the same for all.

Sizes by class are those of the NAS Parallel Benchmarks. Source: Bailey et al., The NAS Parallel Benchmarks,
NAS-95-020, and the tables of NPB 3.4. The edge counts the points that are computed; NPB counts its walls too.
MG has one size for the classes A and B, which differ in their number of iterations alone, as all of EP do.

The memory of one rank by solver, in bytes, for legal rank counts, is known before anything is allocated. What
this host has not is refused before it is touched and the kernel kills for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from foundation.errors import HostError, UsageError
from workloads.rrba.cuts import (
    PointGrid,
    box_of,
    check_boxes,
    check_cells,
    check_pencils,
    default_grid,
    multipartition,
    pencil,
    slab_of,
)
from workloads.task.slurm_task import MEMORY, available_bytes

if TYPE_CHECKING:
    from mpi4py import MPI

    from workloads.rrba.solvers.step_solver import StepSolver


def _cubes(**edges: int) -> Mapping[str, PointGrid]:
    return {name: PointGrid(edge, edge, edge) for name, edge in edges.items()}


BT_CLASSES = _cubes(S=12, W=24, A=64, B=102, C=162)
SP_CLASSES = _cubes(S=12, W=36, A=64, B=102, C=162)
LU_CLASSES = _cubes(S=12, W=33, A=64, B=102, C=162)
CG_CLASSES: Mapping[str, PointGrid] = {
    "S": PointGrid(1_400, 56, 1),
    "W": PointGrid(7_000, 72, 1),
    "A": PointGrid(14_000, 132, 1),
    "B": PointGrid(75_000, 182, 1),
    "C": PointGrid(150_000, 240, 1),
}
"""Order, and entries of a row off the diagonal: even numbers, near the mean of the benchmark."""
FT_CLASSES: Mapping[str, PointGrid] = {
    "S": PointGrid(64, 64, 64),
    "W": PointGrid(128, 128, 32),
    "A": PointGrid(256, 256, 128),
    "B": PointGrid(512, 256, 256),
    "C": PointGrid(512, 512, 512),
}
EP_CLASSES: Mapping[str, PointGrid] = dict.fromkeys("SWABC", PointGrid(64, 64, 16))
"""Pairs a step: classes differ in their number of iterations alone."""
MG_CLASSES = _cubes(S=32, W=128, A=256, B=256, C=512)

_WORD, _COMPONENTS = 8, 5


def jacobi_bytes(grid: PointGrid, ranks: int) -> int:
    """Return the memory of the largest slab."""
    # Two fields and the sums while stepping; the check at the end holds one field more for a moment.
    return 4 * _WORD * (slab_of(grid, ranks, 0).planes + 2) * (grid.rows + 2) * (grid.columns + 2)


def bt_bytes(grid: PointGrid, ranks: int) -> int:
    """Return the memory of state, change and a 5x5 block at each point."""
    state, points = _cells(grid, ranks)
    return _WORD * (state + points * (_COMPONENTS + _COMPONENTS**2))


def sp_bytes(grid: PointGrid, ranks: int) -> int:
    """Return the memory of state, change and two coefficients for each value."""
    state, points = _cells(grid, ranks)
    return _WORD * (state + 3 * points * _COMPONENTS)


def lu_bytes(grid: PointGrid, ranks: int) -> int:
    """Return the memory of state, change and forcing."""
    part = pencil(grid, ranks, 0)
    return 3 * _WORD * _COMPONENTS * (grid.planes + 2) * (part.rows + 2) * (part.columns + 2)


def mg_bytes(grid: PointGrid, ranks: int) -> int:
    """Return the memory of two arrays on every level, and one more on the finest."""
    planes, rows, columns = box_of(ranks, 0).extent(grid.planes)
    finest = (planes + 2) * (rows + 2) * (columns + 2)
    # Each level has an eighth of the points of the one above.
    return _WORD * (finest + 2 * finest * 8 // 7)


def cg_bytes(grid: PointGrid, ranks: int) -> int:
    """Return the memory of a rank's entries with their places, and of three whole vectors."""
    return (_WORD + 4) * slab_of(grid, ranks, 0).planes * grid.rows + 3 * _WORD * grid.planes


def _cells(grid: PointGrid, ranks: int) -> tuple[int, int]:
    """Return the values of the state with what surrounds it, and the points, of the first rank."""
    cells = multipartition(grid, ranks, 0).cells
    extents = [cell.extent for cell in cells]
    return (
        sum((a + 4) * (b + 4) * (c + 4) * _COMPONENTS for a, b, c in extents),
        sum(cell.points for cell in cells),
    )


def check_fits(grid: PointGrid, rank_bytes: int, ranks_here: int = 1, memory: Path = MEMORY) -> None:
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


@dataclass(frozen=True, slots=True)
class SolverApplication:
    """A kind of computation.

    Attributes
    ----------
    name
        As the command line and the reports call it.
    summary
        One line for the user.
    check
        Raises ``UsageError`` where (grid, ranks) is not legal.
    build
        Makes the calling rank's solver; collective.
    rank_bytes
        The memory of a rank, of a grid and a legal number of ranks.
    classes
        Grids with names.
    usual
        The class of a job that names no grid; without classes its grid follows its number of ranks.
    """

    name: str
    summary: str
    check: Callable[[PointGrid, int], None]
    build: Callable[[MPI.Comm, PointGrid], StepSolver]
    rank_bytes: Callable[[PointGrid, int], int]
    classes: Mapping[str, PointGrid] = field(default_factory=dict)
    usual: str = ""

    def usual_grid(self, ranks: int) -> PointGrid:
        """Return the grid of a job that names none."""
        return self.classes[self.usual] if self.usual else default_grid(ranks)


def _check_matrix(grid: PointGrid, ranks: int) -> None:
    """Raise UsageError where a grid is none of CG's, or has fewer rows than ranks."""
    if grid.rows % 2 or grid.columns != 1 or grid.planes < 2:
        raise UsageError(
            f"--grid is {grid}; cg takes ORDERxENTRIESx1, with an even number of entries a row: 1400x56x1"
        )
    slab_of(grid, ranks, 0)


def _check_transform(grid: PointGrid, ranks: int) -> None:
    """Raise UsageError where the ranks do not divide planes and rows."""
    if grid.planes % ranks or grid.rows % ranks:
        raise UsageError(f"ft cuts planes and rows of its grid evenly; {ranks} ranks do not divide {grid}")


def _check_slabs(grid: PointGrid, ranks: int) -> None:
    slab_of(grid, ranks, 0)


# Solvers are imported where they are built: neither numpy nor numba is needed to say what is wrong with a
# command line, and a job loads but the one that it runs.
def _solver(name: str, solver: str, *, compiled: bool = True) -> Callable[[MPI.Comm, PointGrid], StepSolver]:
    """Return what builds a solver of the module ``name``; ``compiled``: one rank compiles it for all."""
    path = f"workloads.rrba.solvers.{name}"

    def build(comm: MPI.Comm, grid: PointGrid) -> StepSolver:
        if compiled:
            from workloads.rrba.solvers.compiled_solvers import compiled_once

            with compiled_once(name):
                importlib.import_module(path)
        built: StepSolver = getattr(importlib.import_module(path), solver)(comm, grid)
        return built

    return build


APPLICATIONS: dict[str, SolverApplication] = {
    application.name: application
    for application in (
        SolverApplication(
            "jacobi",
            "3-D heat equation, 7-point Jacobi sweeps",
            _check_slabs,
            _solver("jacobi", "Jacobi", compiled=False),
            jacobi_bytes,
        ),
        SolverApplication(
            "lu",
            "SSOR wavefront of 5x5 blocks, pipelined, after NPB LU",
            check_pencils,
            _solver("lu", "Relaxation"),
            lu_bytes,
            LU_CLASSES,
            "W",
        ),
        SolverApplication(
            "bt",
            "block tridiagonal lines, after NPB BT",
            lambda grid, ranks: check_cells(grid, ranks, "bt"),
            _solver("bt", "BlockTridiagonal"),
            bt_bytes,
            BT_CLASSES,
            "W",
        ),
        SolverApplication(
            "sp",
            "scalar pentadiagonal lines, after NPB SP",
            lambda grid, ranks: check_cells(grid, ranks, "sp"),
            _solver("sp", "ScalarPentadiagonal"),
            sp_bytes,
            SP_CLASSES,
            "W",
        ),
        SolverApplication(
            "mg",
            "multigrid V-cycles, after NPB MG",
            check_boxes,
            _solver("mg", "Multigrid"),
            mg_bytes,
            MG_CLASSES,
            "S",
        ),
        SolverApplication(
            "cg",
            "conjugate gradients on a sparse random matrix, after NPB CG",
            _check_matrix,
            _solver("cg", "ConjugateGradient"),
            cg_bytes,
            CG_CLASSES,
            "W",
        ),
        SolverApplication(
            "ft",
            "3-D Fourier transforms, all to all, after NPB FT",
            _check_transform,
            _solver("ft", "FourierTransform", compiled=False),
            lambda grid, ranks: 6 * 2 * _WORD * grid.points // ranks,
            FT_CLASSES,
            "S",
        ),
        SolverApplication(
            "ep",
            "pairs of Gaussian numbers, no communication, after NPB EP",
            _check_slabs,
            _solver("ep", "GaussianPairs"),
            lambda grid, ranks: 8 * _WORD * grid.points // ranks,
            EP_CLASSES,
            "S",
        ),
    )
}


def application_named(name: str) -> SolverApplication:
    """Return the application called ``name``.

    Raises
    ------
    UsageError
        There is none; the message lists those that there are.
    """
    if name not in APPLICATIONS:
        raise UsageError(f"no application is called {name!r}; there are {', '.join(sorted(APPLICATIONS))}")
    return APPLICATIONS[name]
