"""Elimination along lines of scalar pentadiagonal systems, one for each of five quantities.

Source: Gaussian elimination of a band matrix without pivoting, Golub and Van Loan, Matrix Computations, 4.3.
A cell's data are flat arrays with strides, so that the same code runs along each axis.
"""

from __future__ import annotations

from workloads.rrba.solvers.kernels.compiled_solvers import kernel
from workloads.rrba.solvers.kernels.solved_model import Array

# What a line hands on: two coefficients and the value of its last two points, five quantities each; and back
# the values of its first two.
FORWARD_CARRY, BACKWARD_CARRY = 30, 10


@kernel(
    "void(float64[::1], float64[::1], float64[::1], float64[::1], float64[::1], float64, boolean, boolean,"
    " int64, int64, int64, int64, int64, int64)"
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
    points: int,
    across: int,
    along: int,
    point_stride: int,
    across_stride: int,
    along_stride: int,
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
    points, across, along, point_stride, across_stride, along_stride
        As for blocks, see ``bt_kernels``.
    """
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


@kernel(
    "void(float64[::1], float64[::1], float64[::1], float64[::1], int64, int64, int64, int64, int64, int64)"
)
def substitute(
    change: Array,
    upper: Array,
    arriving: Array,
    leaving: Array,
    points: int,
    across: int,
    along: int,
    point_stride: int,
    across_stride: int,
    along_stride: int,
) -> None:
    """Substitute upwards; ``arriving`` has, by line and quantity, the values of the next two points."""
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
