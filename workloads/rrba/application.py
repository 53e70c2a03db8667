"""The applications by name, and what a solver offers to the program that steps it.

To add one: write a module whose class satisfies ``Solver`` and enter it in ``APPLICATIONS``. Choosing
the number of steps, reporting, calibration and termination are the program's and the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from osub.errors import UsageError
from workloads.rrba.grid import Grid, slab_of

if TYPE_CHECKING:
    from mpi4py import MPI

    from workloads.rrba.waiting import Waiting


class Solver(Protocol):
    """One rank's part of a time-stepping computation whose answer is known."""

    @property
    def waiting(self) -> Waiting:
        """The rank's account of its communication."""
        ...

    @property
    def tolerance(self) -> float:
        """The largest ``deviation`` that rounding explains."""
        ...

    def step(self) -> None:
        """Advance one time step. Collective: no rank can be more than one step ahead of a neighbour."""
        ...

    def change_square(self) -> float:
        """Return this rank's sum of squares of what the latest step changed."""
        ...

    def deviation(self) -> float:
        """Return this rank's largest distance from the known solution at this step."""
        ...

    def close(self) -> None:
        """Release what the message-passing library holds."""
        ...


@dataclass(frozen=True, slots=True)
class Application:
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
    """

    name: str
    summary: str
    check: Callable[[Grid, int], None]
    build: Callable[[MPI.Comm, Grid], Solver]


def _check_slabs(grid: Grid, ranks: int) -> None:
    slab_of(grid, ranks, 0)


def _build_jacobi(comm: MPI.Comm, grid: Grid) -> Solver:
    # Here, since numpy is not needed to say what is wrong with a command line.
    from workloads.rrba.jacobi import Jacobi

    return Jacobi(comm, grid)


APPLICATIONS: dict[str, Application] = {
    application.name: application
    for application in (
        Application("jacobi", "3-D heat equation, 7-point Jacobi sweeps", _check_slabs, _build_jacobi),
    )
}


def application_named(name: str) -> Application:
    """Return the application called ``name``.

    Raises
    ------
    UsageError
        There is none; the message lists those that there are.
    """
    if name not in APPLICATIONS:
        raise UsageError(f"no application is called {name!r}; there are {', '.join(sorted(APPLICATIONS))}")
    return APPLICATIONS[name]
