"""SP: the alternating-direction step with scalar pentadiagonal systems along every line.

The coupling of an axis is diagonalised: the change is turned into its eigenvectors, five scalar systems are
solved on each line, and it is turned into those of the next axis. The fourth differences make them
pentadiagonal. Source: Pulliam and Chaussee, Journal of Computational Physics 39(2), 1981; NAS-95-020,
section on SP.

Elimination along lines of scalar pentadiagonal systems, one for each of five quantities.

Source: Gaussian elimination of a band matrix without pivoting, Golub and Van Loan, Matrix Computations, 4.3.
A cell's data are flat arrays with strides, so that the same code runs along each axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workloads.rrba.cuts import PointGrid
from workloads.rrba.solvers.adi import AlternatingDirections, LineKernels, Lines
from workloads.rrba.solvers.compiled_solvers import kernel
from workloads.rrba.solvers.solved_model import (
    COMPONENTS,
    DIFFUSION,
    DISSIPATION,
    coupling,
    eigenvalues,
    eigenvectors,
    second_difference,
)
from workloads.rrba.solvers.step_solver import Array

if TYPE_CHECKING:
    from mpi4py import MPI


class ScalarPentadiagonal(AlternatingDirections):
    """One rank's cells of the box."""

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        edges = (grid.planes, grid.rows, grid.columns)
        values = [second_difference(edge) for edge in edges]
        factors = [
            DIFFUSION * values[axis] * coupling(axis)
            + (1 + DISSIPATION * values[axis] ** 2) * np.eye(COMPONENTS)
            for axis in (2, 1, 0)
        ]
        # A line hands on two coefficients and the value of its last two points, five quantities each. Back it
        # hands the values of its first two.
        super().__init__(comm, grid, factors, LineKernels(eliminate, substitute, (30, 10), 2 * COMPONENTS))
        self._diffusion: list[Array] = [DIFFUSION * eigenvalues(axis) for axis in range(3)]
        planes, rows, columns = (eigenvectors(axis) for axis in range(3))
        # Before each solve into its axis's eigenvectors, and after the last one back.
        self._turns: list[Array] = [
            np.ascontiguousarray(matrix) for matrix in (columns.T, rows.T @ columns, planes.T @ rows, planes)
        ]

    def solve(self) -> None:
        """Solve along columns, rows and planes, each in its own eigenvectors."""
        for axis, matrix in zip((2, 1, 0), self._turns, strict=False):
            self._turn(matrix)
            self.sweep(axis)
        self._turn(self._turns[-1])

    def _turn(self, matrix: Array) -> None:
        for each in self._fields:
            turn(each.change.reshape(-1), matrix)

    def coefficients(self, axis: int, place: int) -> tuple[object, ...]:
        """Return the weights of differences, and whether a cell begins or ends at a wall."""
        slab = self._part.cells[place].place[axis]
        return self._diffusion[axis], DISSIPATION, slab == 0, slab == self._part.cuts - 1


@kernel(
    "void(float64[::1], float64[::1], float64[::1], float64[::1], float64[::1], float64, boolean, boolean,"
    " UniTuple(int64, 6))"
)
def eliminate(
    change: Array,
    upper: Array,
    arriving: Array,
    leaving: Array,
    diffusion: Array,
    dissipation: float,
    is_first: bool,
    is_last: bool,
    lines: Lines,
) -> None:
    """Eliminate downwards: each point is left as ``x + e x_next + f x_nextnext = z``.

    Parameters
    ----------
    change, upper
        Flat; 5 and 10 values a point: z; e and f.
    arriving, leaving
        By line and quantity: e, f, z of the last point but one, then of the last, of the cell before and of
        this.
    diffusion
        The weight of second differences by quantity, shape (5,).
    dissipation
        The weight of fourth differences.
    is_first, is_last
        Whether the line begins, or ends, at a wall, where the fourth difference is of an odd function.
    lines
        See ``Lines``.
    """
    points, across, along, point_stride, across_stride, along_stride = lines
    far = dissipation
    for a in range(across):
        for b in range(along):
            line = (a * along + b) * 30
            start = a * across_stride + b * along_stride
            for m in range(5):
                near = -(diffusion[m] + 4.0 * dissipation)
                centre = 1.0 + 2.0 * diffusion[m] + 6.0 * dissipation
                at = line + 6 * m
                e2, f2, z2 = arriving[at], arriving[at + 1], arriving[at + 2]
                e1, f1, z1 = arriving[at + 3], arriving[at + 4], arriving[at + 5]
                for i in range(points):
                    at = start + i * point_stride + m
                    middle = centre
                    if (is_first and i == 0) or (is_last and i == points - 1):
                        middle -= dissipation
                    below = near - far * e2
                    pivot = 1.0 / (middle - far * f2 - below * e1)
                    e = (near - below * f1) * pivot
                    f = far * pivot
                    z = (change[at] - far * z2 - below * z1) * pivot
                    change[at] = z
                    upper[2 * at] = e
                    upper[2 * at + 1] = f
                    e2, f2, z2 = e1, f1, z1
                    e1, f1, z1 = e, f, z
                at = line + 6 * m
                leaving[at], leaving[at + 1], leaving[at + 2] = e2, f2, z2
                leaving[at + 3], leaving[at + 4], leaving[at + 5] = e1, f1, z1


@kernel("void(float64[::1], float64[::1], float64[::1], float64[::1], UniTuple(int64, 6))")
def substitute(
    change: Array,
    upper: Array,
    arriving: Array,
    leaving: Array,
    lines: Lines,
) -> None:
    """Substitute upwards; ``arriving`` has, by line and quantity, the values of the next two points."""
    points, across, along, point_stride, across_stride, along_stride = lines
    for a in range(across):
        for b in range(along):
            line = (a * along + b) * 10
            start = a * across_stride + b * along_stride
            for m in range(5):
                next1, next2 = arriving[line + 2 * m], arriving[line + 2 * m + 1]
                for i in range(points - 1, -1, -1):
                    at = start + i * point_stride + m
                    value = change[at] - upper[2 * at] * next1 - upper[2 * at + 1] * next2
                    change[at] = value
                    next1, next2 = value, next1
                leaving[line + 2 * m], leaving[line + 2 * m + 1] = next1, next2


@kernel("void(float64[::1], float64[:,::1])")
def turn(change: Array, matrix: Array) -> None:
    """Multiply the five values of each point by ``matrix``; ``change`` is flat."""
    for at in range(0, change.size, 5):
        v0, v1, v2, v3, v4 = change[at], change[at + 1], change[at + 2], change[at + 3], change[at + 4]
        for m in range(5):
            change[at + m] = (
                matrix[m, 0] * v0
                + matrix[m, 1] * v1
                + matrix[m, 2] * v2
                + matrix[m, 3] * v3
                + matrix[m, 4] * v4
            )
