"""EP: pairs of Gaussian numbers, counted by size, after the NPB benchmark; ranks meet but for the sums.

A step draws as many pairs as the grid has points, each rank its part of the generator's one sequence. Source:
NAS-95-020, section 2.2. NPB's classes differ in how many pairs are drawn in all, which is the number of steps
here. The latest step is checked by other means: all numbers of the sequence at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from workloads.rrba.cuts import PointGrid, slab_of
from workloads.rrba.solvers.compiled_solvers import kernel
from workloads.rrba.solvers.step_solver import Array, StepSolver

if TYPE_CHECKING:
    from mpi4py import MPI

MULTIPLIER, MODULUS, SEED = 5**13, 2**46, 271828183
_ANNULI = 10


class GaussianPairs(StepSolver):
    """One rank's part of the pairs of a step."""

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        super().__init__()
        slab = slab_of(grid, comm.Get_size(), comm.Get_rank())
        plane = grid.rows * grid.columns
        self._pairs, self._before, self._points = slab.planes * plane, slab.first * plane, grid.points
        self._latest: Array = np.zeros(2 + _ANNULI)
        self._steps = 0

    def step(self) -> None:
        """Draw this rank's pairs of the next step."""
        count_pairs(np.uint64(self._state(self._steps)), self._pairs, self._latest)
        self._steps += 1

    def change_square(self) -> float:
        """Return the squares of the latest step's two sums."""
        return float(self._latest[:2] @ self._latest[:2])

    def deviation(self) -> float:
        """Return how far the latest sums and counts are from those of all their numbers at once."""
        if self._steps == 0:
            return 0.0
        factors = np.full(2 * self._pairs, MULTIPLIER, dtype=np.uint64)
        factors[0] = MULTIPLIER * self._state(self._steps - 1) % MODULUS
        mask = np.uint64(MODULUS - 1)
        # A product of so many powers of the multiplier wraps at 2^64, of which 2^46 is a divisor.
        numbers = (np.multiply.accumulate(factors) & mask).astype(np.float64) / MODULUS
        x, y = (2.0 * numbers - 1.0).reshape(-1, 2).T
        square = x * x + y * y
        inside = (square > 0.0) & (square <= 1.0)
        factor = np.sqrt(-2.0 * np.log(square[inside]) / square[inside])
        x, y = x[inside] * factor, y[inside] * factor
        annulus = np.minimum(_ANNULI - 1, np.maximum(np.abs(x), np.abs(y)).astype(np.int64))
        wanted = np.concatenate(([x.sum(), y.sum()], np.bincount(annulus, minlength=_ANNULI)))
        return float(np.max(np.abs(self._latest - wanted)))

    def _state(self, step: int) -> int:
        """Return the generator's state before this rank's first number of a step."""
        return SEED * pow(MULTIPLIER, 2 * (step * self._points + self._before), MODULUS) % MODULUS


@kernel("void(uint64, int64, float64[::1])")
def count_pairs(state: np.uint64, pairs: int, sums: Array) -> None:
    """Set ``sums`` to the sums of both numbers, then how many pairs fall into each of ten square annuli.

    ``state`` is that of the generator before the first number: x -> 5^13 x mod 2^46 (NAS-95-020, 2.3).
    """
    multiplier, mask = np.uint64(1220703125), np.uint64((1 << 46) - 1)
    sums[:] = 0.0
    for _ in range(pairs):
        state = (multiplier * state) & mask
        x = 2.0 * (float(state) / 70368744177664.0) - 1.0
        state = (multiplier * state) & mask
        y = 2.0 * (float(state) / 70368744177664.0) - 1.0
        square = x * x + y * y
        if 0.0 < square <= 1.0:
            factor = math.sqrt(-2.0 * math.log(square) / square)
            x, y = x * factor, y * factor
            sums[0] += x
            sums[1] += y
            sums[2 + min(9, int(max(abs(x), abs(y))))] += 1.0
