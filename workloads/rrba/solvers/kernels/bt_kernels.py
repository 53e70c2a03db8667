"""Elimination along lines of block tridiagonal systems with 5x5 blocks.

Source: the Thomas algorithm for blocks, Golub and Van Loan, Matrix Computations, 4.5. A cell's data are flat
arrays with strides, so that the same code runs along each axis.
"""

from __future__ import annotations

import numpy as np

from workloads.rrba.solvers.kernels.compiled_solvers import kernel
from workloads.rrba.solvers.kernels.solved_model import Array

# What a line hands on to the next cell: the block and the five values of its last point; and back.
FORWARD_CARRY, BACKWARD_CARRY = 30, 5


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
    " int64, int64, int64, int64, int64, int64)"
)
def eliminate(
    change: Array,
    blocks: Array,
    arriving: Array,
    leaving: Array,
    diagonal: Array,
    off_diagonal: Array,
    points: int,
    across: int,
    along: int,
    point_stride: int,
    across_stride: int,
    along_stride: int,
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
    points, across, along
        Points of a line; lines along the two other axes.
    point_stride, across_stride, along_stride
        In values of ``change``.
    """
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


@kernel(
    "void(float64[::1], float64[::1], float64[::1], float64[::1], int64, int64, int64, int64, int64, int64)"
)
def substitute(
    change: Array,
    blocks: Array,
    arriving: Array,
    leaving: Array,
    points: int,
    across: int,
    along: int,
    point_stride: int,
    across_stride: int,
    along_stride: int,
) -> None:
    """Substitute upwards what ``eliminate`` left; ``arriving`` has 5 values a line, of the point after it."""
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
