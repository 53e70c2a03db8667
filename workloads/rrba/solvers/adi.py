"""What BT and SP share: an alternating-direction step on a multipartition, and the exchange of faces.

A step is: exchange faces, form the right-hand side, solve along all lines of each axis in turn, add the
change (Beam and Warming, AIAA Journal 16(4), 1978). A solve sweeps the slabs downwards and back
upwards; between two slabs each rank hands its lines' ends to one neighbour and takes those of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workloads.rrba.cuts import Multipartition, PointGrid, RankCell, multipartition
from workloads.rrba.ranks.lone_rank import WaitingTime
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
    mode,
    place,
    profile,
)

if TYPE_CHECKING:
    from mpi4py import MPI

Lines = tuple[int, int, int, int, int, int]

# Fourth differences reach two points to either side.
AROUND = 2


def lines_of(cell: RankCell, axis: int) -> Lines:
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
        self, comm: MPI.Comm, grid: PointGrid, factors: Sequence[Array], carries: tuple[int, int]
    ) -> None:
        self.waiting = WaitingTime()
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


@dataclass(frozen=True, slots=True)
class CellFields:
    """A cell's arrays.

    Attributes
    ----------
    cell
        Which one.
    state
        The solution with two points more at each end; shape (planes + 4, rows + 4, columns + 4, 5).
    change
        The right-hand side, and after the solves the change of a step; shape (planes, rows, columns, 5).
    factors
        The mode's factor along each axis, inner points only.
    """

    cell: RankCell
    state: Array
    change: Array
    factors: tuple[Array, Array, Array]


def make_fields(grid: PointGrid, cell: RankCell) -> CellFields:
    """Return a cell's arrays; the state is the profile, walls and beyond included."""
    edges = (grid.planes, grid.rows, grid.columns)
    spans = list(zip(edges, cell.first, cell.extent, strict=True))
    z, y, x = (place(edge, first, count, AROUND) for edge, first, count in spans)
    state = np.stack([profile(height, y, x) for height in z])
    factors = tuple(mode(edge, first, count, 0) for edge, first, count in spans)
    assert len(factors) == 3
    return CellFields(cell, state, np.zeros((*cell.extent, COMPONENTS)), factors)


def cell_deviation(grid: PointGrid, fields: CellFields, amplitudes: Array) -> float:
    """Return a cell's largest distance from the exact solution; plane by plane, to need no memory."""
    edges = (grid.planes, grid.rows, grid.columns)
    spans = zip(edges, fields.cell.first, fields.cell.extent, strict=True)
    z, y, x = (place(edge, first, count, 0) for edge, first, count in spans)
    f, g, h = fields.factors
    worst = 0.0
    for index, height in enumerate(z):
        shape = (f[index] * g[:, None] * h[None, :])[:, :, None]
        exact = profile(height, y, x) + shape * amplitudes
        inner = fields.state[index + AROUND, AROUND:-AROUND, AROUND:-AROUND]
        worst = max(worst, float(np.max(np.abs(inner - exact))))
    return worst


class FaceExchange:
    """Fills what surrounds the cells of a rank: from their neighbours, and beyond the walls by reflection.

    All faces that go to one neighbour go in one message.
    """

    def __init__(
        self, comm: MPI.Comm, part: Multipartition, fields: Sequence[CellFields], waiting: WaitingTime
    ) -> None:
        self._comm = comm
        self._waiting = waiting
        self._reflections: list[tuple[Array, Array, Array]] = []
        self._rounds: list[_Round] = []
        last = part.cuts - 1
        for axis in range(3):
            lower = [f for f in fields if f.cell.place[axis] > 0]
            upper = [f for f in fields if f.cell.place[axis] < last]
            if part.cuts > 1:
                # Upwards: from what lies before a cut to what lies behind it; then back.
                up = (_layers(upper, axis, -4, -2), _layers(lower, axis, 0, 2))
                down = (_layers(lower, axis, 2, 4), _layers(upper, axis, -2, None))
                self._rounds.append(_Round(*up, to=part.below[axis], of=part.above[axis], tag=2 * axis))
                self._rounds.append(_Round(*down, to=part.above[axis], of=part.below[axis], tag=2 * axis + 1))
            for each in fields:
                if each.cell.place[axis] == 0:
                    self._reflections.append(_mirror(each.state, axis, 0, 1, 2))
                if each.cell.place[axis] == last:
                    self._reflections.append(_mirror(each.state, axis, -1, -2, -3))

    def exchange(self) -> None:
        """Exchange the faces; return when those of the neighbours are here."""
        for beyond, wall, inside in self._reflections:
            np.multiply(wall, 2.0, out=beyond)
            np.subtract(beyond, inside, out=beyond)
        for each in self._rounds:
            each.pack()
            self._waiting.begin()
            self._comm.Sendrecv(each.outgoing, each.to, each.tag, each.incoming, each.of, each.tag)
            self._waiting.end()
            each.unpack()


class _Round:
    """One message each way: views of the layers to send and to fill, and buffers for them."""

    def __init__(
        self, sources: Sequence[Array], targets: Sequence[Array], *, to: int, of: int, tag: int
    ) -> None:
        self.to, self.of, self.tag = to, of, tag
        self.outgoing: Array = np.empty(sum(view.size for view in sources))
        self.incoming: Array = np.empty(sum(view.size for view in targets))
        self._sources = _paired(self.outgoing, sources)
        self._targets = _paired(self.incoming, targets)

    def pack(self) -> None:
        for buffer, view in self._sources:
            buffer[...] = view

    def unpack(self) -> None:
        for buffer, view in self._targets:
            view[...] = buffer


def _paired(buffer: Array, views: Sequence[Array]) -> list[tuple[Array, Array]]:
    pairs, begin = [], 0
    for view in views:
        pairs.append((buffer[begin : begin + view.size].reshape(view.shape), view))
        begin += view.size
    return pairs


def _layers(fields: Sequence[CellFields], axis: int, begin: int, end: int | None) -> list[Array]:
    """Return the layers ``begin:end`` across ``axis``; along the others inner points: no stencil turns."""
    inner = slice(AROUND, -AROUND)
    index = [inner, inner, inner]
    index[axis] = slice(begin, end)
    return [each.state[tuple(index)] for each in fields]


def _mirror(state: Array, axis: int, beyond: int, wall: int, inside: int) -> tuple[Array, Array, Array]:
    inner = slice(AROUND, -AROUND)

    def layer(at: int) -> Array:
        index: list[slice | int] = [inner, inner, inner]
        index[axis] = at
        view: Array = state[tuple(index)]
        return view

    return layer(beyond), layer(wall), layer(inside)
