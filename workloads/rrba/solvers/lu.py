"""LU: a step by symmetric successive over-relaxation, whose two sweeps run as a pipelined wavefront.

The implicit block system ``(I - r K_d d2/dx_d^2) change = rhs`` is not solved but relaxed once: with D its
diagonal blocks, L and U the lower and upper ones, ``(D + w L) D^-1 (D + w U) change = rhs`` and the state
advances by ``w (2 - w) change``. A rank starts on a plane when its northern and western neighbours have
done theirs: small messages, twice a plane, and the tightest coupling of the four. Source: Barszcz et al.,
Solution of regular, sparse triangular linear systems on vector and distributed-memory multiprocessors, NASA
RNR-93-007; NAS-95-020, section on LU.

The exact answer oscillates, ``u_n = profile + g_n phi d`` with fixed d: what the relaxed operator P makes of
``phi d`` is formed once, by products alone, and stored as forcing. The sweeps must undo it in every step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from workloads.rrba.cuts import Pencil, PointGrid, pencil
from workloads.rrba.solvers.compiled_solvers import kernel
from workloads.rrba.solvers.solved_model import (
    COMPONENTS,
    DIFFUSION,
    couplings,
    mode,
    place,
    profile,
    second_difference,
)
from workloads.rrba.solvers.step_solver import Array, StepSolver

if TYPE_CHECKING:
    from mpi4py import MPI

RELAXATION = 1.2
# Of the exact answer: direction, size and radians a step.
_DIRECTION = np.array([1.0, -0.6, 0.8, -0.4, 0.5])
_SIZE, _RADIANS = 0.2, 0.4
_SOUTHWARD, _EASTWARD, _NORTHWARD, _WESTWARD = 1, 2, 3, 4


def wave(step: int) -> float:
    """Return g of ``step``."""
    return _SIZE * math.sin(_RADIANS * step)


class Relaxation(StepSolver):
    """One rank's pencil of the box."""

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        super().__init__()
        self._comm = comm
        self._grid = grid
        self._part = part = pencil(grid, comm.Get_size(), comm.Get_rank())
        self._weights: Array = DIFFUSION * couplings()
        self._neighbours: Array = RELAXATION * self._weights
        self._diagonal: Array = np.eye(COMPONENTS) + 2 * self._weights.sum(axis=0)
        z, y, x = _coordinates(grid, part, 1)
        self._state: Array = np.stack([profile(height, y, x) for height in z])
        self._change: Array = np.zeros_like(self._state)
        self._factors = _factors(grid, part, 0)
        edges = (grid.planes, grid.rows, grid.columns)
        self._diffused: Array = sum(
            second_difference(edge) * weight @ _DIRECTION
            for edge, weight in zip(edges, self._weights, strict=True)
        )
        self._drive = self._relaxed_mode()
        self._steps = 0

    def _relaxed_mode(self) -> Array:
        """Return P on ``phi d``, shape (planes, rows, columns, 5)."""
        grid, part = self._grid, self._part
        f, g, h = _factors(grid, part, 2)
        inverse = np.linalg.inv(self._diagonal)
        brought = self._neighbours @ _DIRECTION
        # From one row and column before this part to its end.
        inner = np.outer(g[1:-2], h[1:-2])
        by_row, by_column = np.outer(g[2:-1], h[1:-2]), np.outer(g[1:-2], h[2:-1])

        def upper(k: int) -> Array:
            plane: Array = (
                f[k] * inner[:, :, None] * _DIRECTION
                - (
                    f[k + 1] * inner[:, :, None] * brought[0]
                    + f[k] * by_row[:, :, None] * brought[1]
                    + f[k] * by_column[:, :, None] * brought[2]
                )
                @ inverse.T
            )
            # On the walls nothing is solved for.
            if part.first_row == 0:
                plane[0] = 0.0
            if part.first_column == 0:
                plane[:, 0] = 0.0
            return plane

        drive: Array = np.empty((grid.planes, part.rows, part.columns, COMPONENTS))
        before = np.zeros((part.rows + 1, part.columns + 1, COMPONENTS))
        for k in range(grid.planes):
            here = upper(k + 2)
            drive[k] = here[1:, 1:] @ self._diagonal.T - (
                before[1:, 1:] @ self._neighbours[0].T
                + here[:-1, 1:] @ self._neighbours[1].T
                + here[1:, :-1] @ self._neighbours[2].T
            )
            before = here
        return drive

    def step(self) -> None:
        """Advance one time step."""
        self._exchange()
        rate = RELAXATION * (2 - RELAXATION)
        advance = (wave(self._steps + 1) - wave(self._steps)) / rate
        force = wave(self._steps) * self._diffused
        right_hand_side(self._state, self._change, self._drive, self._weights, advance, force, *self._factors)
        self._sweep(-1)
        self._sweep(1)
        add(self._state, self._change, rate)
        self._steps += 1

    def _sweep(self, ahead: int) -> None:
        """Sweep plane after plane: -1 downwards from the north-western corner, 1 upwards from the other."""
        part, change, planes = self._part, self._change, self._grid.planes
        if ahead < 0:
            row_of, column_of, row_to, column_to = part.north, part.west, part.south, part.east
            order, outer, border, tags = range(1, planes + 1), 0, -2, (_SOUTHWARD, _EASTWARD)
        else:
            row_of, column_of, row_to, column_to = part.south, part.east, part.north, part.west
            order, outer, border, tags = range(planes, 0, -1), -1, 1, (_NORTHWARD, _WESTWARD)
        for k in order:
            self._receive(row_of, change[k, outer, 1:-1], tags[0])
            self._receive(column_of, change[k, 1:-1, outer], tags[1])
            sweep_plane(change, self._neighbours, self._diagonal, k, ahead, ahead < 0)
            self._send(row_to, change[k, border, 1:-1], tags[0])
            self._send(column_to, change[k, 1:-1, border], tags[1])

    def _exchange(self) -> None:
        """Exchange the state's faces with the four neighbours."""
        part, inner = self._part, self._state[1:-1]
        for to, leaving, of, arriving, tag in (
            (part.south, inner[:, -2, 1:-1], part.north, inner[:, 0, 1:-1], 5),
            (part.north, inner[:, 1, 1:-1], part.south, inner[:, -1, 1:-1], 6),
            (part.east, inner[:, 1:-1, -2], part.west, inner[:, 1:-1, 0], 7),
            (part.west, inner[:, 1:-1, 1], part.east, inner[:, 1:-1, -1], 8),
        ):
            if to is None and of is None:
                continue
            outgoing, incoming = np.ascontiguousarray(leaving), np.empty(arriving.shape)
            with self.waiting:
                self._comm.Sendrecv(outgoing, _or_null(to), tag, incoming, _or_null(of), tag)
            if of is not None:
                arriving[...] = incoming

    def _receive(self, of: int | None, into: Array, tag: int) -> None:
        if of is None:
            return
        incoming = into if into.flags.c_contiguous else np.empty(into.shape)
        with self.waiting:
            self._comm.Recv(incoming, of, tag)
        into[...] = incoming

    def _send(self, to: int | None, what: Array, tag: int) -> None:
        if to is None:
            return
        outgoing = np.ascontiguousarray(what)
        with self.waiting:
            self._comm.Send(outgoing, to, tag)

    def change_square(self) -> float:
        """Return the sum of squares of the latest step's changes on this pencil."""
        return float(sum(np.einsum("jim,jim->", plane, plane) for plane in self._change[1:-1, 1:-1, 1:-1]))

    def deviation(self) -> float:
        """Return the largest difference from the exact solution on this pencil."""
        z, y, x = _coordinates(self._grid, self._part, 0)
        f, g, h = self._factors
        amplitudes = wave(self._steps) * _DIRECTION
        worst = 0.0
        for k, height in enumerate(z):
            exact = profile(height, y, x) + (f[k] * np.outer(g, h))[:, :, None] * amplitudes
            worst = max(worst, float(np.max(np.abs(self._state[k + 1, 1:-1, 1:-1] - exact))))
        return worst


def _or_null(rank: int | None) -> int:
    from mpi4py import MPI

    null: int = MPI.PROC_NULL
    return null if rank is None else rank


def _coordinates(grid: PointGrid, part: Pencil, around: int) -> tuple[Array, Array, Array]:
    return (
        place(grid.planes, 0, grid.planes, around),
        place(grid.rows, part.first_row, part.rows, around),
        place(grid.columns, part.first_column, part.columns, around),
    )


def _factors(grid: PointGrid, part: Pencil, around: int) -> tuple[Array, Array, Array]:
    return (
        mode(grid.planes, 0, grid.planes, around),
        mode(grid.rows, part.first_row, part.rows, around),
        mode(grid.columns, part.first_column, part.columns, around),
    )


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
