"""BT: the alternating-direction step with block tridiagonal systems, 5x5 blocks, along every line.

The blocks couple all five quantities, and each point's block is eliminated anew in every step, as it must be
where it depends on the solution. Source: NAS-95-020, section on BT.

Elimination along lines of block tridiagonal systems with 5x5 blocks.

Source: the Thomas algorithm for blocks, Golub and Van Loan, Matrix Computations, 4.5. A cell's data are flat
arrays with strides, so that the same code runs along each axis.
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
    coupling,
    second_difference,
)
from workloads.rrba.solvers.step_solver import Array

if TYPE_CHECKING:
    from mpi4py import MPI


class BlockTridiagonal(AlternatingDirections):
    """One rank's cells of the box."""

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        edges = (grid.planes, grid.rows, grid.columns)
        # In the order of the solves: columns first, planes last.
        factors = [
            np.eye(COMPONENTS) + DIFFUSION * second_difference(edges[axis]) * coupling(axis)
            for axis in (2, 1, 0)
        ]
        # A line hands on the block and the five values of its last point, and back the values of its first.
        super().__init__(comm, grid, factors, LineKernels(eliminate, substitute, (30, 5), COMPONENTS**2))
        weights = [DIFFUSION * coupling(axis) for axis in range(3)]
        self._diagonals: list[Array] = [np.eye(COMPONENTS) + 2 * weight for weight in weights]
        self._besides: list[Array] = [-weight for weight in weights]

    def coefficients(self, axis: int, place: int) -> tuple[object, ...]:  # noqa: ARG002 - alike in all cells
        """Return the blocks of a point and of its neighbours."""
        return self._diagonals[axis], self._besides[axis]


@kernel("void(float64[:,::1], float64[:,::1], float64[:,::1], float64[:,::1], float64[::1])")
def form_row(work: Array, diagonal: Array, off_diagonal: Array, last: Array, value: Array) -> None:
    """Set ``work`` to a point's block, the next one's and its value, the point before being eliminated."""
    for m in range(5):
        total = work[m, 10]
        for q in range(5):
            total -= off_diagonal[m, q] * value[q]
        work[m, 10] = total
        for n in range(5):
            total = diagonal[m, n]
            for q in range(5):
                total -= off_diagonal[m, q] * last[q, n]
            work[m, n] = total
            work[m, 5 + n] = off_diagonal[m, n]


@kernel("void(float64[:,::1])")
def reduce_row(work: Array) -> None:
    """Turn the block of ``work`` into the unit matrix; no search for pivots, for it is positive definite."""
    for p in range(5):
        pivot = 1.0 / work[p, p]
        for n in range(p + 1, 11):
            work[p, n] *= pivot
        for m in range(5):
            if m != p:
                factor = work[m, p]
                for n in range(p + 1, 11):
                    work[m, n] -= factor * work[p, n]


@kernel(
    "void(float64[::1], float64[::1], float64[::1], float64[::1], float64[:,::1], float64[:,::1],"
    " UniTuple(int64, 6))"
)
def eliminate(
    change: Array,
    blocks: Array,
    arriving: Array,
    leaving: Array,
    diagonal: Array,
    off_diagonal: Array,
    lines: Lines,
) -> None:
    """Eliminate downwards: each point is left as ``value + block * next = z``, ``z`` in ``change``.

    Parameters
    ----------
    change, blocks
        Flat; 5 and 25 values a point.
    arriving, leaving
        By line, 25 values of the last point's block and then its 5 values, of the cell before and of this.
    diagonal, off_diagonal
        The system's blocks, shape (5, 5).
    lines
        See ``Lines``.
    """
    points, across, along, point_stride, across_stride, along_stride = lines
    work = np.empty((5, 11))
    last = np.empty((5, 5))
    value = np.empty(5)
    for a in range(across):
        for b in range(along):
            line = (a * along + b) * 30
            for m in range(5):
                for n in range(5):
                    last[m, n] = arriving[line + 5 * m + n]
                value[m] = arriving[line + 25 + m]
            start = a * across_stride + b * along_stride
            for i in range(points):
                at = start + i * point_stride
                for m in range(5):
                    work[m, 10] = change[at + m]
                form_row(work, diagonal, off_diagonal, last, value)
                reduce_row(work)
                for m in range(5):
                    value[m] = work[m, 10]
                    change[at + m] = value[m]
                    for n in range(5):
                        last[m, n] = work[m, 5 + n]
                        blocks[5 * at + 5 * m + n] = last[m, n]
            for m in range(5):
                for n in range(5):
                    leaving[line + 5 * m + n] = last[m, n]
                leaving[line + 25 + m] = value[m]


@kernel("void(float64[::1], float64[::1], float64[::1], float64[::1], UniTuple(int64, 6))")
def substitute(
    change: Array,
    blocks: Array,
    arriving: Array,
    leaving: Array,
    lines: Lines,
) -> None:
    """Substitute upwards what ``eliminate`` left; ``arriving`` has 5 values a line, of the point after it."""
    points, across, along, point_stride, across_stride, along_stride = lines
    for a in range(across):
        for b in range(along):
            line = (a * along + b) * 5
            v0, v1, v2 = arriving[line], arriving[line + 1], arriving[line + 2]
            v3, v4 = arriving[line + 3], arriving[line + 4]
            start = a * across_stride + b * along_stride
            for i in range(points - 1, -1, -1):
                at = start + i * point_stride
                for m in range(5):
                    row = 5 * at + 5 * m
                    change[at + m] -= (
                        blocks[row] * v0
                        + blocks[row + 1] * v1
                        + blocks[row + 2] * v2
                        + blocks[row + 3] * v3
                        + blocks[row + 4] * v4
                    )
                v0, v1, v2, v3, v4 = (
                    change[at],
                    change[at + 1],
                    change[at + 2],
                    change[at + 3],
                    change[at + 4],
                )
            leaving[line], leaving[line + 1], leaving[line + 2] = v0, v1, v2
            leaving[line + 3], leaving[line + 4] = v3, v4
