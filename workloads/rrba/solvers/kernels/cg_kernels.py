"""The product of a sparse matrix, with as many entries in every row, and a vector."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.rrba.solvers.kernels.compiled_solvers import kernel
from workloads.rrba.solvers.kernels.solved_model import Array


@kernel("void(float64[::1], int32[:,::1], float64[:,::1], float64[::1], int64)")
def sparse_product(
    product: Array, columns: NDArray[np.int32], values: Array, vector: Array, first: int
) -> None:
    """Set ``product`` to these rows of (I + the entries) times ``vector``; row 0 is row ``first`` of all."""
    for row in range(columns.shape[0]):
        total = vector[first + row]
        for place in range(columns.shape[1]):
            total += values[row, place] * vector[columns[row, place]]
        product[row] = total
