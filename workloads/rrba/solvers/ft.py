"""FT: a periodic field moved in its spectrum, one inverse Fourier transform a step, after the NPB benchmark.

A step multiplies the spectrum by factors of absolute value 1, one a wave, transforms it along planes, hands
every rank a part of every other's (all to all), and transforms along rows and columns. Source: NAS-95-020,
section on FT, with one cut, along planes. The factors move the field by ``SHIFTS`` points a step, so it is
known after any number of them: it begins as random numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workloads.rrba.cuts import PointGrid
from workloads.rrba.solvers.step_solver import StepSolver

if TYPE_CHECKING:
    from mpi4py import MPI

SHIFTS = (1, 2, 3)
_SEED = 271828183

Waves = NDArray[np.complex128]


class FourierTransform(StepSolver):
    """One rank's planes of the field, and its rows of the spectrum."""

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        super().__init__()
        self._comm, self._grid = comm, grid
        ranks, rank = comm.Get_size(), comm.Get_rank()
        self._planes, self._rows = grid.planes // ranks, grid.rows // ranks
        self._ranks, self._first = ranks, rank * self._planes
        field = np.array([self._at_first(self._first + k) for k in range(self._planes)], dtype=np.complex128)
        self._spectrum: Waves = np.fft.fft(self._to_rows(np.fft.fft2(field, axes=(1, 2))), axis=0)
        own = np.arange(rank * self._rows, (rank + 1) * self._rows)
        turns = (
            np.arange(grid.planes)[:, np.newaxis, np.newaxis] * SHIFTS[0] / grid.planes
            + own[:, np.newaxis] * SHIFTS[1] / grid.rows
            + np.arange(grid.columns) * SHIFTS[2] / grid.columns
        )
        self._factor: Waves = np.exp(-2j * np.pi * turns)
        self._field = field
        self._steps = 0

    def step(self) -> None:
        """Move the field."""
        self._spectrum *= self._factor
        self._field = np.fft.ifft2(self._to_planes(np.fft.ifft(self._spectrum, axis=0)), axes=(1, 2))
        self._steps += 1

    def change_square(self) -> float:
        """Return this rank's part of the sum of squares of the latest step's change (Parseval's theorem)."""
        change = self._spectrum * (1.0 - self._factor.conj())
        return float(np.vdot(change, change).real) / self._grid.points

    def deviation(self) -> float:
        """Return the largest difference from the moved field on this rank's planes."""
        turns = [shift * self._steps for shift in SHIFTS]
        worst = 0.0
        for k, plane in enumerate(self._field):
            before = self._at_first((self._first + k - turns[0]) % self._grid.planes)
            wanted = np.roll(before, (turns[1] % self._grid.rows, turns[2] % self._grid.columns), axis=(0, 1))
            worst = max(worst, float(np.max(np.abs(plane - wanted))))
        return worst

    def _at_first(self, plane: int) -> NDArray[np.float64]:
        return np.random.default_rng(_SEED + plane).random((self._grid.rows, self._grid.columns))

    def _to_planes(self, waves: Waves) -> Waves:
        """Return this rank's planes, (planes, R, C), of what is cut along rows, (P, rows, C)."""
        parts = self._exchanged(waves.reshape(self._ranks, self._planes, self._rows, self._grid.columns))
        return parts.transpose(1, 0, 2, 3).reshape(self._planes, self._grid.rows, self._grid.columns)

    def _to_rows(self, waves: Waves) -> Waves:
        """Return this rank's rows, (P, rows, C), of what is cut along planes, (planes, R, C)."""
        parts = waves.reshape(self._planes, self._ranks, self._rows, self._grid.columns).transpose(1, 0, 2, 3)
        return self._exchanged(parts).reshape(self._grid.planes, self._rows, self._grid.columns)

    def _exchanged(self, parts: Waves) -> Waves:
        """Send part i to rank i; return what came from each."""
        if self._ranks == 1:
            return parts
        sent = np.ascontiguousarray(parts)
        found = np.empty_like(sent)
        with self.waiting:
            self._comm.Alltoall(sent, found)
        return found
