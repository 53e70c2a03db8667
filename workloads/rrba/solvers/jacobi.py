"""The heat equation on a box by explicit time steps, which are Jacobi's sweeps of the Laplace equation.

Each point becomes the mean of its six neighbours: the explicit Euler step at the largest stable step,
``dt = h^2 / 6`` (LeVeque, Finite Difference Methods for Ordinary and Partial Differential Equations,
SIAM 2007, sections 4.1 and 9.4). The walls are held at a temperature linear in the index along each
axis, and the box starts with one sine mode on top of it. Of that, the discrete solution is exactly::

    u_n = wall + q^n * mode,    q = (cos(pi/(p+1)) + cos(pi/(r+1)) + cos(pi/(c+1))) / 3

for p planes, r rows and c columns, so that a run of any length is checked at its end. Values tend to
the wall temperature, from 1 to 4, and never to zero: a long run meets no denormal numbers and all its
steps cost the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from workloads.rrba.cuts import PointGrid, Slab, slab_of
from workloads.rrba.solvers.step_solver import Array, StepSolver, WaitingTime

if TYPE_CHECKING:
    from mpi4py import MPI


UPWARD, DOWNWARD = 0, 1


def decay(grid: PointGrid) -> float:
    """Return q, the factor by which one step shrinks the sine mode."""
    edges = (grid.planes, grid.rows, grid.columns)
    return sum(math.cos(math.pi / (edge + 1)) for edge in edges) / 3


def exact(grid: PointGrid, slab: Slab, steps: int) -> Array:
    """Return the solution after ``steps`` on a slab with its surrounding planes and walls.

    Shape (slab.planes + 2, rows + 2, columns + 2).
    """
    place = [
        np.arange(slab.first, slab.first + slab.planes + 2) / (grid.planes + 1),
        np.arange(grid.rows + 2) / (grid.rows + 1),
        np.arange(grid.columns + 2) / (grid.columns + 1),
    ]
    x, y, z = np.meshgrid(*place, indexing="ij", sparse=True)
    mode = np.sin(np.pi * x) * np.sin(np.pi * y) * np.sin(np.pi * z)
    solution: Array = 1.0 + x + y + z + decay(grid) ** steps * mode
    return solution


def sweep(old: Array, new: Array, work: Array) -> None:
    """Set the inner points of ``new`` to the mean of their six neighbours in ``old``.

    ``work`` holds the sums; its shape is that of the inner points.
    """
    np.add(old[:-2, 1:-1, 1:-1], old[2:, 1:-1, 1:-1], out=work)
    np.add(work, old[1:-1, :-2, 1:-1], out=work)
    np.add(work, old[1:-1, 2:, 1:-1], out=work)
    np.add(work, old[1:-1, 1:-1, :-2], out=work)
    np.add(work, old[1:-1, 1:-1, 2:], out=work)
    np.multiply(work, 1.0 / 6.0, out=new[1:-1, 1:-1, 1:-1])


class Jacobi(StepSolver):
    """One rank's slab of the box.

    Parameters
    ----------
    comm
        All ranks of the job.
    grid
        The job's grid.

    Raises
    ------
    UsageError
        There are more ranks than planes.
    """

    # Often enough that a report after termination is at most a few milliseconds old, and that all ranks, not
    # neighbours alone, are tied together; seldom enough to cost little.
    settle_steps = 16

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        super().__init__()
        self._grid = grid
        self._slab = slab_of(grid, comm.Get_size(), comm.Get_rank())
        start = exact(grid, self._slab, 0)
        self._fields = (start, start.copy())
        self._work: Array = np.empty((self._slab.planes, grid.rows, grid.columns))
        self._halo = SlabHalo(comm, self._fields, self.waiting)
        self._steps = 0

    def step(self) -> None:
        """Sweep the slab and exchange its border planes."""
        into = 1 - self._steps % 2
        sweep(self._fields[1 - into], self._fields[into], self._work)
        self._halo.exchange(into)
        self._steps += 1

    def change_square(self) -> float:
        """Return the sum of squares of the latest step's changes on this slab."""
        inner = (slice(1, -1),) * 3
        np.subtract(self._fields[0][inner], self._fields[1][inner], out=self._work)
        flat = self._work.reshape(-1)
        return float(np.dot(flat, flat))

    def deviation(self) -> float:
        """Return the largest difference from the exact solution on this slab, neighbours' planes included."""
        field = self._fields[self._steps % 2]
        return float(np.max(np.abs(field - exact(self._grid, self._slab, self._steps))))

    def close(self) -> None:
        """Free the requests of the exchange."""
        self._halo.close()


class SlabHalo:
    """Fills the outer planes of a rank's arrays with the neighbours' border planes.

    Parameters
    ----------
    comm
        The ranks in the order of their slabs.
    arrays
        Shape (planes + 2, ...), contiguous, all alike; plane 0 and the last are to be filled. At the
        ends of the grid they are its walls and stay as they are.
    waiting
        Called with each exchange.
    """

    def __init__(self, comm: MPI.Comm, arrays: Sequence[Array], waiting: WaitingTime) -> None:
        rank, ranks = comm.Get_rank(), comm.Get_size()
        above = rank - 1 if rank > 0 else None
        below = rank + 1 if rank < ranks - 1 else None
        self._waiting = waiting
        self._requests: list[list[MPI.Prequest]] = []
        for array in arrays:
            requests: list[MPI.Prequest] = []
            if above is not None:
                requests.append(comm.Recv_init(array[0], above, DOWNWARD))
                requests.append(comm.Send_init(array[1], above, UPWARD))
            if below is not None:
                requests.append(comm.Recv_init(array[-1], below, UPWARD))
                requests.append(comm.Send_init(array[-2], below, DOWNWARD))
            self._requests.append(requests)

    def exchange(self, index: int) -> None:
        """Exchange the border planes of array ``index``; return when those of the neighbours are here."""
        requests = self._requests[index]
        if not requests:
            return
        from mpi4py import MPI

        with self._waiting:
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)

    def close(self) -> None:
        """Free the requests."""
        for requests in self._requests:
            for request in requests:
                request.Free()
        self._requests = []
