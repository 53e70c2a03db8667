"""The right-hand side of LU and the two sweeps of its successive over-relaxation, plane by plane."""

from __future__ import annotations

import numpy as np

from workloads.rrba.solvers.kernels.compiled_solvers import kernel
from workloads.rrba.solvers.kernels.solved_model import Array


@kernel(
    "void(float64[:,:,:,::1], float64[:,:,:,::1], float64[:,:,:,::1], float64[:,:,::1], float64,"
    " float64[::1], float64[::1], float64[::1], float64[::1])"
)
def right_hand_side(
    state: Array,
    change: Array,
    drive: Array,
    weights: Array,
    drive_factor: float,
    force: Array,
    f: Array,
    g: Array,
    h: Array,
) -> None:
    """Set the inner points of ``change`` to diffusion and forcing of ``state``.

    ``state`` and ``change`` have one point more at each end. ``weights`` are the couplings times dt / h^2,
    shape (3, 5, 5). The forcing is ``drive_factor`` times ``drive``, plus ``force`` times the mode
    ``f[k] g[j] h[i]``.
    """
    planes, rows, columns, _ = drive.shape
    for k in range(planes):
        for j in range(rows):
            for i in range(columns):
                here = state[k + 1, j + 1, i + 1]
                above, below = state[k, j + 1, i + 1], state[k + 2, j + 1, i + 1]
                north, south = state[k + 1, j, i + 1], state[k + 1, j + 2, i + 1]
                west, east = state[k + 1, j + 1, i], state[k + 1, j + 1, i + 2]
                phi = f[k] * g[j] * h[i]
                for m in range(5):
                    total = force[m] * phi + drive_factor * drive[k, j, i, m]
                    for n in range(5):
                        twice = 2.0 * here[n]
                        total += weights[0, m, n] * (above[n] - twice + below[n])
                        total += weights[1, m, n] * (north[n] - twice + south[n])
                        total += weights[2, m, n] * (west[n] - twice + east[n])
                    change[k + 1, j + 1, i + 1, m] = total


@kernel("void(float64[:,:,:,::1], float64[:,:,::1], float64[:,::1], int64, int64, boolean)")
def sweep_plane(
    change: Array, neighbours: Array, diagonal: Array, plane: int, ahead: int, solving: bool
) -> None:
    """Sweep one plane of the wavefront, in place.

    Parameters
    ----------
    change
        One point more at each end, zero on the walls.
    neighbours
        Relaxation times the weights of the neighbours, shape (3, 5, 5).
    diagonal
        The block of a point, shape (5, 5).
    plane
        Which, counting the one beyond the wall.
    ahead
        -1 sweeps downwards from the first row and column, with the neighbours before; 1 upwards from the
        last, with those after.
    solving
        Whether the value there is a right-hand side, to be solved for (lower sweep), or is corrected by what
        the neighbours bring (upper sweep).
    """
    rows, columns = change.shape[1] - 2, change.shape[2] - 2
    work = np.empty((5, 6))
    for row in range(rows):
        j = row + 1 if ahead < 0 else rows - row
        for column in range(columns):
            i = column + 1 if ahead < 0 else columns - column
            by_plane, by_row = change[plane + ahead, j, i], change[plane, j + ahead, i]
            by_column = change[plane, j, i + ahead]
            here = change[plane, j, i]
            for m in range(5):
                total = here[m] if solving else 0.0
                for n in range(5):
                    total += neighbours[0, m, n] * by_plane[n]
                    total += neighbours[1, m, n] * by_row[n]
                    total += neighbours[2, m, n] * by_column[n]
                    work[m, n] = diagonal[m, n]
                work[m, 5] = total
            # The pivots need no search: the block is positive definite.
            for p in range(5):
                pivot = 1.0 / work[p, p]
                for m in range(p + 1, 5):
                    factor = work[m, p] * pivot
                    for n in range(p + 1, 6):
                        work[m, n] -= factor * work[p, n]
            for p in range(4, -1, -1):
                total = work[p, 5]
                for n in range(p + 1, 5):
                    total -= work[p, n] * work[n, 5]
                work[p, 5] = total / work[p, p]
            for m in range(5):
                here[m] = work[m, 5] if solving else here[m] + work[m, 5]


@kernel("void(float64[:,:,:,::1], float64[:,:,:,::1], float64)")
def add(state: Array, change: Array, factor: float) -> None:
    """Add ``factor`` times ``change`` to the inner points of ``state``."""
    planes, rows, columns, _ = state.shape
    for k in range(1, planes - 1):
        for j in range(1, rows - 1):
            for i in range(1, columns - 1):
                for m in range(5):
                    state[k, j, i, m] += factor * change[k, j, i, m]
