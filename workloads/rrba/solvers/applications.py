"""The applications by name, and what a solver offers to the program that steps it.

To add one: write a module whose class satisfies ``StepSolver`` and enter it in ``APPLICATIONS``. Choosing
the number of steps, reporting, calibration and termination are the program's and the same for all.

The memory of one rank by solver, known before anything is allocated, and whether this host has it.

In bytes, for legal rank counts. What does not fit is refused before it is touched and the kernel kills for
it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from foundation.errors import UsageError
from workloads.rrba.cuts import PointGrid, check_boxes, check_cells, check_pencils, default_grid, slab_of
from workloads.rrba.solvers.problem_classes import (
    BT_CLASSES,
    CG_CLASSES,
    EP_CLASSES,
    FT_CLASSES,
    LU_CLASSES,
    MG_CLASSES,
    SP_CLASSES,
)

if TYPE_CHECKING:
    from mpi4py import MPI

    from workloads.rrba.ranks.lone_rank import WaitingTime


from pathlib import Path

from foundation.errors import HostError
from workloads.rrba.cuts import box_of, multipartition, pencil
from workloads.task.slurm_task import MEMORY, available_bytes

_WORD, _COMPONENTS = 8, 5


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


class StepSolver(Protocol):
    """One rank's part of a time-stepping computation whose answer is known."""

    @property
    def waiting(self) -> WaitingTime:
        """The rank's account of its communication."""
        ...

    @property
    def tolerance(self) -> float:
        """The largest ``deviation`` that rounding explains, or iteration up to this step."""
        ...

    @property
    def settle_steps(self) -> int:
        """How many steps make up a few milliseconds at most: as often all ranks settle accounts."""
        ...

    def step(self) -> None:
        """Advance one time step. Collective: no rank can be more than one step ahead of a neighbour."""
        ...

    def change_square(self) -> float:
        """Return this rank's sum of squares of what the latest step changed, or what it left to change."""
        ...

    def deviation(self) -> float:
        """Return this rank's largest distance from the known solution at this step."""
        ...

    def close(self) -> None:
        """Release what the message-passing library holds."""
        ...


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
    usual_grid
        The grid of a job that names none, of its number of ranks.
    classes
        Grids with names.
    """

    name: str
    summary: str
    check: Callable[[PointGrid, int], None]
    build: Callable[[MPI.Comm, PointGrid], StepSolver]
    rank_bytes: Callable[[PointGrid, int], int]
    usual_grid: Callable[[int], PointGrid]
    classes: Mapping[str, PointGrid] = field(default_factory=dict)


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


def _build_jacobi(comm: MPI.Comm, grid: PointGrid) -> StepSolver:
    from workloads.rrba.solvers.jacobi import Jacobi

    return Jacobi(comm, grid)


def _jacobi_bytes(grid: PointGrid, ranks: int) -> int:
    from workloads.rrba.solvers.jacobi import bytes_needed

    return bytes_needed(grid, ranks)


def _compiled(name: str, solver: str) -> Callable[[MPI.Comm, PointGrid], StepSolver]:
    """Return what builds a solver of the module ``name``, whose kernels one rank compiles for all."""

    def build(comm: MPI.Comm, grid: PointGrid) -> StepSolver:
        from workloads.rrba.solvers.kernels.compiled_solvers import compiled_once

        with compiled_once(name):
            module = importlib.import_module(f"workloads.rrba.solvers.{name}")
        built: StepSolver = getattr(module, solver)(comm, grid)
        return built

    return build


def _build_ft(comm: MPI.Comm, grid: PointGrid) -> StepSolver:
    from workloads.rrba.solvers.ft import FourierTransform

    return FourierTransform(comm, grid)


APPLICATIONS: dict[str, SolverApplication] = {
    application.name: application
    for application in (
        SolverApplication(
            "jacobi",
            "3-D heat equation, 7-point Jacobi sweeps",
            _check_slabs,
            _build_jacobi,
            _jacobi_bytes,
            default_grid,
        ),
        SolverApplication(
            "lu",
            "SSOR wavefront of 5x5 blocks, pipelined, after NPB LU",
            check_pencils,
            _compiled("lu", "Relaxation"),
            lu_bytes,
            lambda _: LU_CLASSES["W"],
            LU_CLASSES,
        ),
        SolverApplication(
            "bt",
            "block tridiagonal lines, after NPB BT",
            lambda grid, ranks: check_cells(grid, ranks, "bt"),
            _compiled("bt", "BlockTridiagonal"),
            bt_bytes,
            lambda _: BT_CLASSES["W"],
            BT_CLASSES,
        ),
        SolverApplication(
            "sp",
            "scalar pentadiagonal lines, after NPB SP",
            lambda grid, ranks: check_cells(grid, ranks, "sp"),
            _compiled("sp", "ScalarPentadiagonal"),
            sp_bytes,
            lambda _: SP_CLASSES["W"],
            SP_CLASSES,
        ),
        SolverApplication(
            "mg",
            "multigrid V-cycles, after NPB MG",
            check_boxes,
            _compiled("mg", "Multigrid"),
            mg_bytes,
            lambda _: MG_CLASSES["S"],
            MG_CLASSES,
        ),
        SolverApplication(
            "cg",
            "conjugate gradients on a sparse random matrix, after NPB CG",
            _check_matrix,
            _compiled("cg", "ConjugateGradient"),
            cg_bytes,
            lambda _: CG_CLASSES["W"],
            CG_CLASSES,
        ),
        SolverApplication(
            "ft",
            "3-D Fourier transforms, all to all, after NPB FT",
            _check_transform,
            _build_ft,
            lambda grid, ranks: 6 * 2 * _WORD * grid.points // ranks,
            lambda _: FT_CLASSES["S"],
            FT_CLASSES,
        ),
        SolverApplication(
            "ep",
            "pairs of Gaussian numbers, no communication, after NPB EP",
            _check_slabs,
            _compiled("ep", "GaussianPairs"),
            lambda grid, ranks: 8 * _WORD * grid.points // ranks,
            lambda _: EP_CLASSES["S"],
            EP_CLASSES,
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
