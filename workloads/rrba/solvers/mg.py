"""MG: V-cycles for a Helmholtz equation on a periodic cube.

A step is one V-cycle and the residual after it. Restriction, smoothing and prolongation are the benchmark's;
each level exchanges all faces, from the large messages of the finest to the small ones of the coarsest. Where
a rank would be left with one point, the cube is gathered and every rank cycles through the rest. Source:
NAS-95-020, section on MG; Briggs, Henson and McCormick, A Multigrid Tutorial, SIAM 2000, chapter 3.

The benchmark's Poisson equation has solutions that differ by a constant, whose rounding errors nothing damps
over a long run; the term ``- SHIFT u`` does. The right-hand side is the operator on two waves, which are
therefore the exact solution of the discrete equation.

The four operators of a V-cycle on a box with one layer around it.

The operators have one coefficient for each class of neighbour: the point itself, 6 faces, 12 edges, 8
corners. Along a line of columns the sums of a point's four face and four edge neighbours in the two other
axes are formed once and used by three points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from workloads.rrba.cuts import Box, PointGrid, box_of
from workloads.rrba.solvers.compiled_solvers import kernel
from workloads.rrba.solvers.step_solver import Array, StepSolver, WaitingTime

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


def _smooth_once(torus: TorusExchange, level: _Level, wanted: Array) -> None:
    """Exchange the state of a mesh, form what it lacks of ``wanted``, and smooth it; fill all layers."""
    torus.exchange(level.state)
    residual(level.lacking, wanted, level.state, level.weights)
    torus.exchange(level.lacking)
    smooth(level.state, level.lacking, SMOOTHER)
    torus.exchange(level.state)


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
            # In place: a point's residual is the last use of what was wanted there.
            _smooth_once(self._torus, level, level.lacking)
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
            _smooth_once(self._alone, level, level.lacking)
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


class Multigrid(StepSolver):
    """One rank's box of the cube."""

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        super().__init__()
        self._edge = grid.planes
        self._box = box_of(comm.Get_size(), comm.Get_rank())
        self._torus = TorusExchange(comm, self._box, self.waiting)
        self._cycle = Cycle(comm, self._box, self.waiting, self._edge)
        self._finest = _Level(self._edge, self._box.extent(self._edge))
        self._wanted: Array = np.zeros_like(self._finest.state)
        factors = [eigenvalue(self._edge, periods) for _, periods in _WAVES]
        for k, target in enumerate(self._wanted[1:-1, 1:-1, 1:-1]):
            target[...] = self._waves(k, factors)
        self._finest.lacking[1:-1, 1:-1, 1:-1] = self._wanted[1:-1, 1:-1, 1:-1]
        self._torus.exchange(self._finest.lacking)
        self._steps = 0

    @property
    def tolerance(self) -> float:
        """What the cycles so far leave of the first error, 1, and for ever of rounding."""
        return max(super().tolerance, SHRINKING**self._steps)

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
        level = self._finest
        self._cycle.correct(level.lacking, level.state)
        _smooth_once(self._torus, level, self._wanted)
        residual(level.lacking, self._wanted, level.state, level.weights)
        self._torus.exchange(level.lacking)
        self._steps += 1

    def change_square(self) -> float:
        """Return the sum of squares of this box's residual."""
        return float(sum(np.vdot(plane, plane) for plane in self._finest.lacking[1:-1, 1:-1, 1:-1]))

    def deviation(self) -> float:
        """Return the largest difference from the exact solution in this box."""
        ones, inner = [1.0] * len(_WAVES), self._finest.state[1:-1, 1:-1, 1:-1]
        return max(float(np.max(np.abs(plane - self._waves(k, ones)))) for k, plane in enumerate(inner))


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
        with self._waiting:
            self._comm.Sendrecv(outgoing, to, tag, incoming, of, tag)
        arriving[...] = incoming

    def gather(self, inner: Array) -> Array:
        """Return the whole cube, of which ``inner`` is this rank's part, on every rank."""
        parts = self._box.parts
        ranks = parts[0] * parts[1] * parts[2]
        if ranks == 1:
            return inner
        pieces: Array = np.empty((ranks, *inner.shape))
        with self._waiting:
            self._comm.Allgather(np.ascontiguousarray(inner), pieces)
        edge = inner.shape[0] * parts[0]
        whole: Array = (
            pieces.reshape(*parts, *inner.shape).transpose(0, 3, 1, 4, 2, 5).reshape(edge, edge, edge)
        )
        return whole


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
