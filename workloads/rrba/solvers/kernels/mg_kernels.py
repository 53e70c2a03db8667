"""The four operators of a V-cycle on a box with one layer around it.

The operators have one coefficient for each class of neighbour: the point itself, 6 faces, 12 edges, 8
corners. Along a line of columns the sums of a point's four face and four edge neighbours in the two other
axes are formed once and used by three points.
"""

from __future__ import annotations

import numpy as np

from workloads.rrba.solvers.kernels.compiled_solvers import kernel
from workloads.rrba.solvers.kernels.solved_model import Array


@kernel("void(float64[:,:,::1], int64, int64, float64[::1], float64[::1])")
def sum_around(field: Array, k: int, j: int, faces: Array, edges: Array) -> None:
    """Add up, for each column of line (k, j), the four face and the four edge neighbours in other lines."""
    for i in range(field.shape[2]):
        faces[i] = field[k - 1, j, i] + field[k + 1, j, i] + field[k, j - 1, i] + field[k, j + 1, i]
        edges[i] = (
            field[k - 1, j - 1, i] + field[k - 1, j + 1, i] + field[k + 1, j - 1, i] + field[k + 1, j + 1, i]
        )


@kernel("void(float64[:,:,::1], float64[:,:,::1], float64[:,:,::1], float64[::1])")
def residual(lacking: Array, wanted: Array, state: Array, weights: Array) -> None:
    """Set the inner points of ``lacking`` to ``wanted`` minus the operator on ``state``."""
    planes, rows, columns = state.shape
    faces, edges = np.empty(columns), np.empty(columns)
    for k in range(1, planes - 1):
        for j in range(1, rows - 1):
            sum_around(state, k, j, faces, edges)
            for i in range(1, columns - 1):
                lacking[k, j, i] = (
                    wanted[k, j, i]
                    - weights[0] * state[k, j, i]
                    - weights[1] * (state[k, j, i - 1] + state[k, j, i + 1] + faces[i])
                    - weights[2] * (edges[i] + faces[i - 1] + faces[i + 1])
                    - weights[3] * (edges[i - 1] + edges[i + 1])
                )


@kernel("void(float64[:,:,::1], float64[:,:,::1], float64[::1])")
def smooth(state: Array, lacking: Array, weights: Array) -> None:
    """Add the smoother on ``lacking`` to the inner points of ``state``."""
    planes, rows, columns = state.shape
    faces, edges = np.empty(columns), np.empty(columns)
    for k in range(1, planes - 1):
        for j in range(1, rows - 1):
            sum_around(lacking, k, j, faces, edges)
            for i in range(1, columns - 1):
                state[k, j, i] += (
                    weights[0] * lacking[k, j, i]
                    + weights[1] * (lacking[k, j, i - 1] + lacking[k, j, i + 1] + faces[i])
                    + weights[2] * (edges[i] + faces[i - 1] + faces[i + 1])
                    + weights[3] * (edges[i - 1] + edges[i + 1])
                )


@kernel("void(float64[:,:,::1], float64[:,:,::1])")
def restrict(coarse: Array, fine: Array) -> None:
    """Set the inner points of ``coarse``: point i takes from ``fine`` around its point 2i.

    The weights 1/2, 1/4, 1/8, 1/16 sum to 4, the ratio of the squared mesh widths, by which the
    operators are not divided.
    """
    planes, rows, columns = coarse.shape
    width = fine.shape[2]
    faces, edges = np.empty(width), np.empty(width)
    for k in range(1, planes - 1):
        p = 2 * k
        for j in range(1, rows - 1):
            q = 2 * j
            sum_around(fine, p, q, faces, edges)
            for i in range(1, columns - 1):
                s = 2 * i
                coarse[k, j, i] = (
                    0.5 * fine[p, q, s]
                    + 0.25 * (fine[p, q, s - 1] + fine[p, q, s + 1] + faces[s])
                    + 0.125 * (edges[s] + faces[s - 1] + faces[s + 1])
                    + 0.0625 * (edges[s - 1] + edges[s + 1])
                )


@kernel("void(float64[:,:,::1], float64[:,:,::1])")
def prolong(fine: Array, coarse: Array) -> None:
    """Add to the inner points of ``fine`` the trilinear interpolation of ``coarse``."""
    planes, rows, columns = fine.shape
    line = np.empty(coarse.shape[2])
    for k in range(1, planes - 1):
        low, high = k // 2, (k + 1) // 2
        for j in range(1, rows - 1):
            left, right = j // 2, (j + 1) // 2
            for i in range(coarse.shape[2]):
                line[i] = 0.25 * (
                    coarse[low, left, i]
                    + coarse[low, right, i]
                    + coarse[high, left, i]
                    + coarse[high, right, i]
                )
            for i in range(1, columns - 1):
                fine[k, j, i] += 0.5 * (line[i // 2] + line[(i + 1) // 2])
