"""Pairs of Gaussian numbers by the polar method, from the generator of the NAS Parallel Benchmarks."""

from __future__ import annotations

import math

import numpy as np

from workloads.rrba.solvers.kernels.compiled_solvers import kernel
from workloads.rrba.solvers.kernels.solved_model import Array


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
