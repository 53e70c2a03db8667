"""BT: the alternating-direction step with block tridiagonal systems, 5x5 blocks, along every line.

The blocks couple all five quantities, and each point's block is eliminated anew in every step, as it must be
where it depends on the solution. Source: NAS-95-020, section on BT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workloads.rrba.cuts import PointGrid
from workloads.rrba.solvers.adi import AlternatingDirections, lines_of
from workloads.rrba.solvers.kernels import bt_kernels
from workloads.rrba.solvers.kernels.solved_model import (
    COMPONENTS,
    DIFFUSION,
    Array,
    coupling,
    second_difference,
)

if TYPE_CHECKING:
    from mpi4py import MPI


class BlockTridiagonal(AlternatingDirections):
    """One rank's cells of the box."""

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        edges = (grid.planes, grid.rows, grid.columns)
        # In the order of the solves: columns first, planes last.
        factors = [
            np.eye(COMPONENTS) + DIFFUSION * second_difference(edges[axis]) * coupling(axis)
            for axis in (2, 1, 0)
        ]
        carries = (bt_kernels.FORWARD_CARRY, bt_kernels.BACKWARD_CARRY)
        super().__init__(comm, grid, factors, carries)
        weights = [DIFFUSION * coupling(axis) for axis in range(3)]
        self._diagonals: list[Array] = [np.eye(COMPONENTS) + 2 * weight for weight in weights]
        self._besides: list[Array] = [-weight for weight in weights]
        self._blocks: list[Array] = [np.empty(cell.points * COMPONENTS**2) for cell in self._part.cells]

    def solve(self) -> None:
        """Solve along columns, rows and planes."""
        for axis in (2, 1, 0):
            self.sweep(axis)

    def eliminate(self, axis: int, cell: int, arriving: Array, leaving: Array) -> None:
        """Eliminate downwards along the lines of ``axis`` in a cell."""
        each = self._fields[cell]
        bt_kernels.eliminate(
            each.change.reshape(-1),
            self._blocks[cell],
            arriving,
            leaving,
            self._diagonals[axis],
            self._besides[axis],
            *lines_of(each.cell, axis),
        )

    def substitute(self, axis: int, cell: int, arriving: Array, leaving: Array) -> None:
        """Substitute upwards along them."""
        each = self._fields[cell]
        bt_kernels.substitute(
            each.change.reshape(-1), self._blocks[cell], arriving, leaving, *lines_of(each.cell, axis)
        )
