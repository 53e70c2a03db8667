"""What BT and SP share: an alternating-direction step on a multipartition.

A step is: exchange faces, form the right-hand side, solve along all lines of each axis in turn, add the
change (Beam and Warming, AIAA Journal 16(4), 1978). A solve sweeps the slabs downwards and back
upwards; between two slabs each rank hands its lines' ends to one neighbour and takes those of another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from workloads.rrba.cuts.multipartition import Cell, multipartition
from workloads.rrba.cuts.slabs import Grid
from workloads.rrba.ranks.communication_time import Waiting
from workloads.rrba.solvers.cell_faces import CellFields, FaceExchange, cell_deviation, make_fields
from workloads.rrba.solvers.kernels.adi_kernels import add, right_hand_side
from workloads.rrba.solvers.kernels.solved_model import (
    COMPONENTS,
    DIFFUSION,
    DISSIPATION,
    TOLERANCE,
    Amplitude,
    Array,
    adi_operator,
    couplings,
    forcing,
)

Lines = tuple[int, int, int, int, int, int]


def lines_of(cell: Cell, axis: int) -> Lines:
    """Return a cell's lines along ``axis``: points, lines across, lines along, and the strides of each."""
    _, rows, columns = cell.extent
    strides = (rows * columns * COMPONENTS, columns * COMPONENTS, COMPONENTS)
    across, along = (other for other in range(3) if other != axis)
    return (
        cell.extent[axis],
        cell.extent[across],
        cell.extent[along],
        strides[axis],
        strides[across],
        strides[along],
    )


class AlternatingDirections:
    """One rank's cells; a subclass solves along the lines.

    Parameters
    ----------
    comm
        All ranks of the job, a square number.
    grid
        The job's grid.
    factors
        The implicit factor of each axis on the mode, in the order of the solves.
    carries
        Values a line hands on downwards and upwards.
    """

    tolerance = TOLERANCE
    settle_steps = 1

    def __init__(
        self, comm: MPI.Comm, grid: Grid, factors: Sequence[Array], carries: tuple[int, int]
    ) -> None:
        self.waiting = Waiting()
        self._comm = comm
        self._grid = grid
        self._part = multipartition(grid, comm.Get_size(), comm.Get_rank())
        self._fields = [make_fields(grid, cell) for cell in self._part.cells]
        self._faces = FaceExchange(comm, self._part, self._fields, self.waiting)
        self._weights: Array = DIFFUSION * couplings()
        self._exact = Amplitude(adi_operator(grid), list(factors))
        self._carries = carries
        self._steps = 0

    def step(self) -> None:
        """Advance one time step."""
        self._faces.exchange()
        force = forcing(self._steps)
        for each in self._fields:
            right_hand_side(each.state, each.change, self._weights, DISSIPATION, force, *each.factors)
        self.solve()
        for each in self._fields:
            add(each.state, each.change)
        self._exact.advance(force)
        self._steps += 1

    def solve(self) -> None:
        """Invert the implicit operator on the change of all cells."""
        raise NotImplementedError

    def eliminate(self, axis: int, cell: int, arriving: Array, leaving: Array) -> None:
        """Eliminate downwards along the lines of ``axis`` in a cell."""
        raise NotImplementedError

    def substitute(self, axis: int, cell: int, arriving: Array, leaving: Array) -> None:
        """Substitute upwards along them."""
        raise NotImplementedError

    def change_square(self) -> float:
        """Return the sum of squares of the latest step's changes in this rank's cells."""
        flats = [each.change.reshape(-1) for each in self._fields]
        return float(sum(np.dot(flat, flat) for flat in flats))

    def deviation(self) -> float:
        """Return the largest difference from the exact solution in this rank's cells."""
        return max(cell_deviation(self._grid, each, self._exact.now) for each in self._fields)

    def close(self) -> None:
        """Release nothing: no message is under way between steps."""

    def sweep(self, axis: int) -> None:
        """Solve along all lines of ``axis``: slab after slab down, and back up."""
        cuts = self._part.cuts
        above, below = self._part.above[axis], self._part.below[axis]
        order = [self._part.cell_of_slab(axis, slab) for slab in range(cuts)]
        sizes = [self._lines(cell, axis) for cell in order]
        down, up = self._carries
        arriving = np.zeros(sizes[0] * down)
        for slab, cell in enumerate(order):
            leaving = np.empty(sizes[slab] * down)
            self.eliminate(axis, cell, arriving, leaving)
            if slab + 1 < cuts:
                arriving = np.empty(sizes[slab + 1] * down)
                self._hand_on(leaving, below, arriving, above, 10 + axis)
        arriving = np.zeros(sizes[-1] * up)
        for slab in range(cuts - 1, -1, -1):
            leaving = np.empty(sizes[slab] * up)
            self.substitute(axis, order[slab], arriving, leaving)
            if slab > 0:
                arriving = np.empty(sizes[slab - 1] * up)
                self._hand_on(leaving, above, arriving, below, 20 + axis)

    def _lines(self, cell: int, axis: int) -> int:
        where: CellFields = self._fields[cell]
        return where.cell.points // where.cell.extent[axis]

    def _hand_on(self, leaving: Array, to: int, arriving: Array, of: int, tag: int) -> None:
        self.waiting.begin()
        self._comm.Sendrecv(leaving, to, tag, arriving, of, tag)
        self.waiting.end()
