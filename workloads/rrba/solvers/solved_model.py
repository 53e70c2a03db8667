"""The model that BT, SP and LU solve: five coupled diffusing quantities on a box with a known solution.

The benchmarks solve the Navier-Stokes equations in five variables. What gives them their character is not the
fluid but the form of the implicit step: 5x5 blocks that couple the variables at a point, lines or
wavefronts of such blocks. This model keeps the form and makes the answer checkable to rounding after any
number of steps::

    du/dt = Kx d2u/dx2 + Ky d2u/dy2 + Kz d2u/dz2 (- eps fourth differences) + forcing

K are symmetric positive definite and do not commute. All is in units of the mesh: ``r`` is dt / h^2.
The walls are held at a profile linear along each axis, for which all differences vanish, and inside

    u_n = profile + phi a_n,    phi = sin(pi x) sin(pi y) sin(pi z)

where ``phi`` is an eigenvector of the differences, so that the amplitudes ``a_n`` follow a recurrence of
5x5 matrices (see ``Amplitude``). The forcing is periodic in time: the field never comes to rest, so that
every step changes it, and values stay near 1, far from denormal numbers.
"""

from __future__ import annotations

import math

import numpy as np

from workloads.rrba.cuts import PointGrid
from workloads.rrba.solvers.step_solver import Array

COMPONENTS = 5
# dt / h^2, of the order of 1: beyond what an explicit step allows, so that the implicit solve matters.
DIFFUSION = 0.5
# The weight of the fourth differences, the benchmarks' artificial dissipation.
DISSIPATION = 0.02

# Forcing: amplitude a step of each quantity, and radians a step.
_FORCING = 0.05 * np.array([1.0, -0.6, 0.8, -0.4, 0.5])
_RADIANS = 0.4
_EIGENVALUES = (
    np.array([1.0, 1.0, 1.0, 1.4, 0.6]),
    np.array([1.0, 1.0, 1.0, 0.7, 1.3]),
    np.array([1.0, 1.0, 1.0, 1.5, 0.8]),
)


def eigenvectors(axis: int) -> Array:
    """Return the orthogonal matrix whose columns are the eigenvectors of ``coupling(axis)``."""
    matrix = np.eye(COMPONENTS)
    for first in range(COMPONENTS - 1):
        angle = 0.3 + 0.5 * axis + 0.2 * first
        turn = np.eye(COMPONENTS)
        turn[first, first] = turn[first + 1, first + 1] = math.cos(angle)
        turn[first, first + 1], turn[first + 1, first] = -math.sin(angle), math.sin(angle)
        matrix = matrix @ turn
    return matrix


def eigenvalues(axis: int) -> Array:
    """Return the eigenvalues of ``coupling(axis)``: three equal ones and two of their own, as of a fluid."""
    return _EIGENVALUES[axis]


def coupling(axis: int) -> Array:
    """Return K of ``axis`` (0 planes, 1 rows, 2 columns), shape (5, 5)."""
    turn = eigenvectors(axis)
    matrix: Array = turn @ np.diag(eigenvalues(axis)) @ turn.T
    return matrix


def couplings() -> Array:
    """Return K of all axes, shape (3, 5, 5)."""
    return np.stack([coupling(axis) for axis in range(3)])


def second_difference(edge: int) -> float:
    """Return minus the eigenvalue of ``phi`` under second differences along an axis of ``edge`` points."""
    return 4 * math.sin(math.pi / (2 * (edge + 1))) ** 2


def mode(edge: int, first: int, count: int, around: int) -> Array:
    """Return the factor of ``phi`` along an axis for ``count`` points from ``first``.

    And for ``around`` more at each end. Exactly zero on the walls; odd beyond them.
    """
    index = np.arange(first - around, first + count + around) + 1
    values: Array = np.sin(np.pi * index / (edge + 1))
    values[index % (edge + 1) == 0] = 0.0
    return values


def place(edge: int, first: int, count: int, around: int) -> Array:
    """Return the coordinates of the same points, 0 and 1 being the walls."""
    coordinates: Array = (np.arange(first - around, first + count + around) + 1) / (edge + 1)
    return coordinates


def profile(z: float, y: Array, x: Array) -> Array:
    """Return the wall profile of one plane, shape (rows, columns, 5)."""
    offset = 1.0 + 0.1 * np.arange(COMPONENTS)
    plane: Array = (z + y[:, None] + x[None, :])[:, :, None] + offset
    return plane


def forcing(step: int) -> Array:
    """Return the forcing's amplitudes at ``step``, shape (5,)."""
    amplitudes: Array = math.cos(_RADIANS * step) * _FORCING
    return amplitudes


class Amplitude:
    """The amplitudes of the exact solution, step by step.

    ``a_{n+1} = a_n + P^-1 (s_n - R a_n)``: R is the operator on ``phi``, P the factored implicit one.

    Parameters
    ----------
    operator
        R, shape (5, 5).
    factors
        The factors of P in the order in which the solver inverts them.
    """

    def __init__(self, operator: Array, factors: list[Array]) -> None:
        self.now: Array = np.zeros(COMPONENTS)
        self._operator = operator
        self._inverse: Array = np.eye(COMPONENTS)
        for factor in factors:
            self._inverse = np.asarray(np.linalg.solve(factor, self._inverse), dtype=np.float64)

    def advance(self, force: Array) -> None:
        """Go on by one step under ``force``."""
        self.now = self.now + self._inverse @ (force - self._operator @ self.now)


def adi_operator(grid: PointGrid) -> Array:
    """Return R of the alternating-direction solvers: diffusion and dissipation."""
    operator: Array = np.zeros((COMPONENTS, COMPONENTS))
    for axis, edge in enumerate((grid.planes, grid.rows, grid.columns)):
        value = second_difference(edge)
        operator += DIFFUSION * value * coupling(axis)
        operator[np.diag_indices(COMPONENTS)] += DISSIPATION * value**2
    return operator
