"""CG: conjugate gradients on a sparse matrix whose entries lie anywhere, after the NPB benchmark.

A step is one solve by 25 iterations from zero. An iteration gathers the vector on every rank, multiplies
the rank's rows by it (each entry reads another place of the vector), and adds up two scalar products over all
ranks. Source: NAS-95-020, section on CG. NPB 3.4 cuts the matrix along both axes; here it is cut into rows.

The matrix is I + c sum_k (P_k + P_k^T) with random permutations P_k: symmetric, as many entries in every row,
and eigenvalues within 1 -+ SPREAD. So 25 iterations always leave less than rounding, and the answer is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workloads.rrba.cuts import PointGrid, slab_of
from workloads.rrba.solvers.compiled_solvers import kernel
from workloads.rrba.solvers.step_solver import Array, StepSolver

if TYPE_CHECKING:
    from mpi4py import MPI

ITERATIONS = 25
SPREAD = 0.6
_SEED = 314159265


class ConjugateGradient(StepSolver):
    """One rank's rows. The grid is ORDERxENTRIESx1: of the matrix, and of a row next to its diagonal."""

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        super().__init__()
        self._comm = comm
        order, entries = grid.planes, grid.rows
        slabs = [slab_of(grid, comm.Get_size(), rank) for rank in range(comm.Get_size())]
        own = slabs[comm.Get_rank()]
        self._first = own.first
        self._rows = slice(own.first, own.first + own.planes)
        self._counts = [slab.planes for slab in slabs]
        self._columns: NDArray[np.int32] = np.empty((own.planes, entries), dtype=np.int32)
        for place in range(entries // 2):
            targets = np.random.default_rng(_SEED + place).permutation(order)
            self._columns[:, 2 * place] = targets[self._rows]
            self._columns[:, 2 * place + 1] = np.argsort(targets)[self._rows]
        self._values: Array = np.full((own.planes, entries), SPREAD / entries)
        self._whole: Array = np.empty(order)
        self._answer: Array = 1.0 + 0.5 * np.cos(0.7 * np.arange(order))
        self._wanted, self._product, self._found, self._lacking, self._along = np.zeros((5, own.planes))
        sparse_product(self._wanted, self._columns, self._values, self._answer, self._first)
        self._sums = np.zeros(2)

    def step(self) -> None:
        """Solve once, from zero."""
        self._found[:] = 0.0
        self._lacking[:] = self._wanted
        self._along[:] = self._wanted
        square = self._summed(self._lacking, self._lacking)
        for _ in range(ITERATIONS):
            self._gather(self._along)
            sparse_product(self._product, self._columns, self._values, self._whole, self._first)
            reach = square / self._summed(self._along, self._product)
            self._found += reach * self._along
            self._lacking -= reach * self._product
            before, square = square, self._summed(self._lacking, self._lacking)
            self._along *= square / before
            self._along += self._lacking

    def change_square(self) -> float:
        """Return the sum of squares of what the latest solve left of this rank's rows."""
        return float(self._lacking @ self._lacking)

    def deviation(self) -> float:
        """Return the largest difference from the answer in this rank's rows."""
        return float(np.max(np.abs(self._found - self._answer[self._rows])))

    def _summed(self, one: Array, other: Array) -> float:
        self._sums[0] = one @ other
        with self.waiting:
            self._comm.Allreduce(self._sums[:1], self._sums[1:])
        return float(self._sums[1])

    def _gather(self, own: Array) -> None:
        if len(self._counts) == 1:
            self._whole[:] = own
            return
        with self.waiting:
            self._comm.Allgatherv(own, (self._whole, self._counts))


@kernel("void(float64[::1], int32[:,::1], float64[:,::1], float64[::1], int64)")
def sparse_product(
    product: Array, columns: NDArray[np.int32], values: Array, vector: Array, first: int
) -> None:
    """Set ``product`` to these rows of (I + the entries) times ``vector``; row 0 is row ``first`` of all."""
    for row in range(columns.shape[0]):
        total = vector[first + row]
        for place in range(columns.shape[1]):
            total += values[row, place] * vector[columns[row, place]]
        product[row] = total
