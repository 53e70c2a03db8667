"""SP: the alternating-direction step with scalar pentadiagonal systems along every line.

The coupling of an axis is diagonalised: the change is turned into its eigenvectors, five scalar systems are
solved on each line, and it is turned into those of the next axis. The fourth differences make them
pentadiagonal. Source: Pulliam and Chaussee, Journal of Computational Physics 39(2), 1981; NAS-95-020,
section on SP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workloads.rrba.cuts import PointGrid
from workloads.rrba.solvers.adi import AlternatingDirections, lines_of
from workloads.rrba.solvers.kernels import sp_kernels
from workloads.rrba.solvers.kernels.adi_kernels import turn
from workloads.rrba.solvers.kernels.solved_model import (
    COMPONENTS,
    DIFFUSION,
    DISSIPATION,
    Array,
    coupling,
    eigenvalues,
    eigenvectors,
    second_difference,
)

if TYPE_CHECKING:
    from mpi4py import MPI


class ScalarPentadiagonal(AlternatingDirections):
    """One rank's cells of the box."""

    def __init__(self, comm: MPI.Comm, grid: PointGrid) -> None:
        edges = (grid.planes, grid.rows, grid.columns)
        values = [second_difference(edge) for edge in edges]
        factors = [
            DIFFUSION * values[axis] * coupling(axis)
            + (1 + DISSIPATION * values[axis] ** 2) * np.eye(COMPONENTS)
            for axis in (2, 1, 0)
        ]
        carries = (sp_kernels.FORWARD_CARRY, sp_kernels.BACKWARD_CARRY)
        super().__init__(comm, grid, factors, carries)
        self._diffusion: list[Array] = [DIFFUSION * eigenvalues(axis) for axis in range(3)]
        self._upper: list[Array] = [np.empty(cell.points * 2 * COMPONENTS) for cell in self._part.cells]
        planes, rows, columns = (eigenvectors(axis) for axis in range(3))
        # Before each solve into its axis's eigenvectors, and after the last one back.
        self._turns: list[Array] = [
            np.ascontiguousarray(matrix) for matrix in (columns.T, rows.T @ columns, planes.T @ rows, planes)
        ]

    def solve(self) -> None:
        """Solve along columns, rows and planes, each in its own eigenvectors."""
        for axis, matrix in zip((2, 1, 0), self._turns, strict=False):
            self._turn(matrix)
            self.sweep(axis)
        self._turn(self._turns[-1])

    def _turn(self, matrix: Array) -> None:
        for each in self._fields:
            turn(each.change.reshape(-1), matrix)

    def eliminate(self, axis: int, cell: int, arriving: Array, leaving: Array) -> None:
        """Eliminate downwards along the lines of ``axis`` in a cell."""
        each = self._fields[cell]
        slab = each.cell.place[axis]
        sp_kernels.eliminate(
            each.change.reshape(-1),
            self._upper[cell],
            arriving,
            leaving,
            self._diffusion[axis],
            DISSIPATION,
            slab == 0,
            slab == self._part.cuts - 1,
            *lines_of(each.cell, axis),
        )

    def substitute(self, axis: int, cell: int, arriving: Array, leaving: Array) -> None:
        """Substitute upwards along them."""
        each = self._fields[cell]
        sp_kernels.substitute(
            each.change.reshape(-1), self._upper[cell], arriving, leaving, *lines_of(each.cell, axis)
        )
