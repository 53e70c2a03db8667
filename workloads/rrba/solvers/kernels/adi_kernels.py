"""The right-hand side of the alternating-direction solvers, and what both do with the change of a step."""

from __future__ import annotations

from workloads.rrba.solvers.kernels.compiled_solvers import kernel
from workloads.rrba.solvers.kernels.solved_model import Array


@kernel(
    "void(float64[:,:,:,::1], float64[:,:,:,::1], float64[:,:,::1], float64,"
    " float64[::1], float64[::1], float64[::1], float64[::1])"
)
def right_hand_side(
    state: Array,
    change: Array,
    weights: Array,
    dissipation: float,
    force: Array,
    f: Array,
    g: Array,
    h: Array,
) -> None:
    """Set ``change`` to diffusion, dissipation and forcing of ``state``.

    ``weights`` are the couplings times dt / h^2, shape (3, 5, 5); ``force`` has five amplitudes of the mode
    ``f[k] g[j] h[i]``.
    """
    planes, rows, columns, _ = change.shape
    for k in range(planes):
        for j in range(rows):
            for i in range(columns):
                here = state[k + 2, j + 2, i + 2]
                a2, a1 = state[k, j + 2, i + 2], state[k + 1, j + 2, i + 2]
                b1, b2 = state[k + 3, j + 2, i + 2], state[k + 4, j + 2, i + 2]
                c2, c1 = state[k + 2, j, i + 2], state[k + 2, j + 1, i + 2]
                d1, d2 = state[k + 2, j + 3, i + 2], state[k + 2, j + 4, i + 2]
                e2, e1 = state[k + 2, j + 2, i], state[k + 2, j + 2, i + 1]
                g1, g2 = state[k + 2, j + 2, i + 3], state[k + 2, j + 2, i + 4]
                phi = f[k] * g[j] * h[i]
                for m in range(5):
                    total = force[m] * phi
                    far = a2[m] + b2[m] + c2[m] + d2[m] + e2[m] + g2[m]
                    near = a1[m] + b1[m] + c1[m] + d1[m] + e1[m] + g1[m]
                    total -= dissipation * (far - 4.0 * near + 18.0 * here[m])
                    for n in range(5):
                        twice = 2.0 * here[n]
                        total += weights[0, m, n] * (a1[n] - twice + b1[n])
                        total += weights[1, m, n] * (c1[n] - twice + d1[n])
                        total += weights[2, m, n] * (e1[n] - twice + g1[n])
                    change[k, j, i, m] = total


@kernel("void(float64[:,:,:,::1], float64[:,:,:,::1])")
def add(state: Array, change: Array) -> None:
    """Add ``change`` to the inner points of ``state``."""
    planes, rows, columns, _ = change.shape
    for k in range(planes):
        for j in range(rows):
            for i in range(columns):
                for m in range(5):
                    state[k + 2, j + 2, i + 2, m] += change[k, j, i, m]


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
