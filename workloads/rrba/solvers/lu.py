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
from workloads.rrba.ranks.lone_rank import WaitingTime
from workloads.rrba.solvers.kernels.lu_kernels import add, right_hand_side, sweep_plane
from workloads.rrba.solvers.kernels.solved_model import (
    COMPONENTS,
    DIFFUSION,
    TOLERANCE,
    Array,
    couplings,
    mode,
    place,
    profile,
    second_difference,
)

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


class Relaxation:
    """One rank's pencil of the box."""

    tolerance = TOLERANCE
    settle_steps = 1

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        self.waiting = WaitingTime()
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
        # Faces go as one message, rows of a plane as they lie, columns through a buffer.
        self._column: Array = np.empty((part.rows, COMPONENTS))
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
        self._sweep_down()
        self._sweep_up()
        add(self._state, self._change, rate)
        self._steps += 1

    def _sweep_down(self) -> None:
        part, change = self._part, self._change
        for k in range(1, self._grid.planes + 1):
            self._receive(part.north, change[k, 0, 1:-1], _SOUTHWARD)
            self._receive_column(part.west, change[k, 1:-1, 0], _EASTWARD)
            sweep_plane(change, self._neighbours, self._diagonal, k, -1, True)
            self._send(part.south, change[k, -2, 1:-1], _SOUTHWARD)
            self._send_column(part.east, change[k, 1:-1, -2], _EASTWARD)

    def _sweep_up(self) -> None:
        part, change = self._part, self._change
        for k in range(self._grid.planes, 0, -1):
            self._receive(part.south, change[k, -1, 1:-1], _NORTHWARD)
            self._receive_column(part.east, change[k, 1:-1, -1], _WESTWARD)
            sweep_plane(change, self._neighbours, self._diagonal, k, 1, False)
            self._send(part.north, change[k, 1, 1:-1], _NORTHWARD)
            self._send_column(part.west, change[k, 1:-1, 1], _WESTWARD)

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
            self.waiting.begin()
            self._comm.Sendrecv(outgoing, _or_null(to), tag, incoming, _or_null(of), tag)
            self.waiting.end()
            if of is not None:
                arriving[...] = incoming

    def _receive(self, of: int | None, into: Array, tag: int) -> None:
        if of is None:
            return
        self.waiting.begin()
        self._comm.Recv(into, of, tag)
        self.waiting.end()

    def _receive_column(self, of: int | None, into: Array, tag: int) -> None:
        if of is not None:
            self._receive(of, self._column, tag)
            into[...] = self._column

    def _send(self, to: int | None, what: Array, tag: int) -> None:
        if to is None:
            return
        self.waiting.begin()
        self._comm.Send(what, to, tag)
        self.waiting.end()

    def _send_column(self, to: int | None, what: Array, tag: int) -> None:
        if to is not None:
            self._column[...] = what
            self._send(to, self._column, tag)

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

    def close(self) -> None:
        """Release nothing: no message is under way between steps."""


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
