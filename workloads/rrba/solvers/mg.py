"""MG: V-cycles for a Helmholtz equation on a periodic cube.

A step is one V-cycle and the residual after it. Restriction, smoothing and prolongation are the benchmark's;
each level exchanges all faces, from the large messages of the finest to the small ones of the coarsest. Where
a rank would be left with one point, the cube is gathered and every rank cycles through the rest. Source:
NAS-95-020, section on MG; Briggs, Henson and McCormick, A Multigrid Tutorial, SIAM 2000, chapter 3.

The benchmark's Poisson equation has solutions that differ by a constant, whose rounding errors nothing damps
over a long run; the term ``- SHIFT u`` does. The right-hand side is the operator on two waves, which are
therefore the exact solution of the discrete equation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from workloads.rrba.cuts import Box, PointGrid, box_of
from workloads.rrba.ranks.lone_rank import WaitingTime
from workloads.rrba.solvers.kernels.mg_kernels import prolong, residual, restrict, smooth
from workloads.rrba.solvers.kernels.solved_model import TOLERANCE, Array

if TYPE_CHECKING:
    from mpi4py import MPI

# In units of the cube's edge; small against 1 / mesh width^2 from the second coarsest mesh on, for which the
# smoother is made.
SHIFT = 10.0
# A cycle shrinks the error at least by this; measured 0.13 to 0.22.
SHRINKING = 0.3
SMOOTHER: Array = np.array([-3 / 8, 1 / 32, -1 / 64, 0.0])
COARSEST = 2
# Of the exact solution: size and periods along each axis.
_WAVES = ((0.6, (1, 2, 1)), (0.4, (3, 1, 2)))
_PHASES = (0.3, 0.7, 1.1)


def operator_weights(edge: int) -> Array:
    """Return the operator's coefficients on a cube with ``edge``: by class of neighbour, mesh width 1."""
    return np.array([-8 / 3 - SHIFT / edge**2, 0.0, 1 / 6, 1 / 12])


def eigenvalue(edge: int, periods: Sequence[int]) -> float:
    """Return the operator's eigenvalue for a wave with so many periods along each axis."""
    x, y, z = (2 * math.cos(2 * math.pi * number / edge) for number in periods)
    weights = operator_weights(edge)
    classes = (1.0, x + y + z, x * y + y * z + z * x, x * y * z)
    return float(sum(weight * value for weight, value in zip(weights, classes, strict=True)))


class _Level:
    """One mesh: its operator, and correction and residual of this rank's part."""

    def __init__(self, edge: int, extent: tuple[int, int, int]) -> None:
        shape = [count + 2 for count in extent]
        self.weights = operator_weights(edge)
        self.state: Array = np.zeros(shape)
        self.lacking: Array = np.zeros(shape)


class Cycle:
    """The meshes below the finest one, and what a V-cycle does on them.

    Parameters
    ----------
    comm, box, waiting
        Who shares the meshes.
    edge
        Of the finest mesh of this cycle, itself not part of it.
    """

    def __init__(self, comm: MPI.Comm, box: Box, waiting: WaitingTime, edge: int) -> None:
        self._torus = TorusExchange(comm, box, waiting)
        self._box = box
        self._levels: list[_Level] = []
        most = max(box.parts)
        edge //= 2
        while edge > COARSEST and edge >= 2 * most:
            self._levels.append(_Level(edge, box.extent(edge)))
            edge //= 2
        self._gathered = _Level(edge, box.extent(edge))
        self._edge = edge
        self._below: Cycle | None = None
        if edge > COARSEST:
            self._whole = _Level(edge, (edge, edge, edge))
            self._alone = TorusExchange(comm, Box((1, 1, 1), (0, 0, 0)), waiting)
            self._below = Cycle(comm, Box((1, 1, 1), (0, 0, 0)), waiting, edge)
        else:
            self._inverse = _inverse(edge)

    def correct(self, lacking: Array, state: Array) -> None:
        """Add to ``state`` what the coarser meshes find for ``lacking``, whose outer layer is filled."""
        for level in self._levels:
            restrict(level.lacking, lacking)
            self._torus.exchange(level.lacking)
            lacking = level.lacking
        restrict(self._gathered.lacking, lacking)
        coarse = self._solve_gathered()
        for level in reversed(self._levels):
            level.state[...] = 0.0
            prolong(level.state, coarse)
            self._torus.exchange(level.state)
            # In place: a point's residual is the last use of what was wanted there.
            residual(level.lacking, level.lacking, level.state, level.weights)
            self._torus.exchange(level.lacking)
            smooth(level.state, level.lacking, SMOOTHER)
            self._torus.exchange(level.state)
            coarse = level.state
        prolong(state, coarse)

    def _solve_gathered(self) -> Array:
        """Solve on the coarsest shared mesh; return this rank's part with its outer layer."""
        whole = self._torus.gather(self._gathered.lacking[1:-1, 1:-1, 1:-1])
        answer: Array
        if self._below is None:
            answer = np.pad((self._inverse @ whole.reshape(-1)).reshape(whole.shape), 1, mode="wrap")
        else:
            level = self._whole
            level.lacking[1:-1, 1:-1, 1:-1] = whole
            self._alone.exchange(level.lacking)
            level.state[...] = 0.0
            self._below.correct(level.lacking, level.state)
            self._alone.exchange(level.state)
            residual(level.lacking, level.lacking, level.state, level.weights)
            self._alone.exchange(level.lacking)
            smooth(level.state, level.lacking, SMOOTHER)
            self._alone.exchange(level.state)
            answer = level.state
        first, extent = self._box.first(self._edge), self._box.extent(self._edge)
        k, j, i = (slice(at, at + count + 2) for at, count in zip(first, extent, strict=True))
        return np.ascontiguousarray(answer[k, j, i])


def _inverse(edge: int) -> Array:
    """Return the inverse of the operator on a cube of a few points."""
    points = edge**3
    columns = []
    for index in range(points):
        unit = np.zeros(points)
        unit[index] = -1.0
        state = np.pad(unit.reshape(edge, edge, edge), 1, mode="wrap")
        applied = np.zeros_like(state)
        residual(applied, np.zeros_like(state), state, operator_weights(edge))
        columns.append(applied[1:-1, 1:-1, 1:-1].reshape(-1))
    return np.asarray(np.linalg.inv(np.array(columns).T), dtype=np.float64)


class Multigrid:
    """One rank's box of the cube."""

    settle_steps = 1

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        self.waiting = WaitingTime()
        self._edge = grid.planes
        self._box = box_of(comm.Get_size(), comm.Get_rank())
        self._torus = TorusExchange(comm, self._box, self.waiting)
        self._cycle = Cycle(comm, self._box, self.waiting, self._edge)
        finest = _Level(self._edge, self._box.extent(self._edge))
        self._state, self._lacking, self._weights = finest.state, finest.lacking, finest.weights
        self._wanted: Array = np.zeros_like(self._state)
        self._inner = self._state[1:-1, 1:-1, 1:-1]
        factors = [eigenvalue(self._edge, periods) for _, periods in _WAVES]
        for k, target in enumerate(self._wanted[1:-1, 1:-1, 1:-1]):
            target[...] = self._waves(k, factors)
        self._lacking[1:-1, 1:-1, 1:-1] = self._wanted[1:-1, 1:-1, 1:-1]
        self._torus.exchange(self._lacking)
        self._steps = 0

    @property
    def tolerance(self) -> float:
        """What the cycles so far leave of the first error, 1, and for ever of rounding."""
        return max(TOLERANCE, SHRINKING**self._steps)

    def _waves(self, plane: int, factors: Sequence[float]) -> Array:
        """Return a plane of the sum of the waves, each times its factor."""
        firsts, extents = self._box.first(self._edge), self._box.extent(self._edge)
        spans = [first + 1 + np.arange(count) for first, count in zip(firsts, extents, strict=True)]
        spans[0] = spans[0][plane : plane + 1]
        total: Array = np.zeros(extents[1:])
        for (size, periods), factor in zip(_WAVES, factors, strict=True):
            f, g, h = (
                np.cos(2 * np.pi * number * span / self._edge + phase)
                for number, span, phase in zip(periods, spans, _PHASES, strict=True)
            )
            total += factor * size * f[0] * np.outer(g, h)
        return total

    def step(self) -> None:
        """Make one V-cycle and form the residual after it."""
        self._cycle.correct(self._lacking, self._state)
        self._torus.exchange(self._state)
        residual(self._lacking, self._wanted, self._state, self._weights)
        self._torus.exchange(self._lacking)
        smooth(self._state, self._lacking, SMOOTHER)
        self._torus.exchange(self._state)
        residual(self._lacking, self._wanted, self._state, self._weights)
        self._torus.exchange(self._lacking)
        self._steps += 1

    def change_square(self) -> float:
        """Return the sum of squares of this box's residual."""
        return float(sum(np.vdot(plane, plane) for plane in self._lacking[1:-1, 1:-1, 1:-1]))

    def deviation(self) -> float:
        """Return the largest difference from the exact solution in this box."""
        ones = [1.0] * len(_WAVES)
        return max(float(np.max(np.abs(plane - self._waves(k, ones)))) for k, plane in enumerate(self._inner))

    def close(self) -> None:
        """Release nothing: no message is under way between steps."""


class TorusExchange:
    """Fills the outermost layer of a rank's arrays, edges and corners included, axis after axis."""

    def __init__(self, comm: MPI.Comm, box: Box, waiting: WaitingTime) -> None:
        self._comm = comm
        self._box = box
        self._waiting = waiting

    def exchange(self, array: Array) -> None:
        """Exchange the faces of ``array``, shape (planes + 2, rows + 2, columns + 2)."""
        for axis in range(3):
            layers = np.moveaxis(array, axis, 0)
            if self._box.parts[axis] == 1:
                layers[0], layers[-1] = layers[-2], layers[1]
                continue
            before, after = self._box.neighbour(axis, -1), self._box.neighbour(axis, 1)
            self._hand_on(layers[-2], after, layers[0], before, 2 * axis)
            self._hand_on(layers[1], before, layers[-1], after, 2 * axis + 1)

    def _hand_on(self, leaving: Array, to: int, arriving: Array, of: int, tag: int) -> None:
        outgoing, incoming = np.ascontiguousarray(leaving), np.empty(arriving.shape)
        self._waiting.begin()
        self._comm.Sendrecv(outgoing, to, tag, incoming, of, tag)
        self._waiting.end()
        arriving[...] = incoming

    def gather(self, inner: Array) -> Array:
        """Return the whole cube, of which ``inner`` is this rank's part, on every rank."""
        parts = self._box.parts
        ranks = parts[0] * parts[1] * parts[2]
        if ranks == 1:
            return inner
        pieces: Array = np.empty((ranks, *inner.shape))
        self._waiting.begin()
        self._comm.Allgather(np.ascontiguousarray(inner), pieces)
        self._waiting.end()
        edge = inner.shape[0] * parts[0]
        whole: Array = (
            pieces.reshape(*parts, *inner.shape).transpose(0, 3, 1, 4, 2, 5).reshape(edge, edge, edge)
        )
        return whole
