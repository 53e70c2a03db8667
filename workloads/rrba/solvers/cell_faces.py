"""The fields of one rank's cells and the exchange of their faces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from workloads.rrba.cuts.multipartition import Cell, Multipartition
from workloads.rrba.cuts.slabs import Grid
from workloads.rrba.ranks.communication_time import Waiting
from workloads.rrba.solvers.kernels.solved_model import COMPONENTS, Array, mode, place, profile

# Fourth differences reach two points to either side.
AROUND = 2


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

    cell: Cell
    state: Array
    change: Array
    factors: tuple[Array, Array, Array]


def make_fields(grid: Grid, cell: Cell) -> CellFields:
    """Return a cell's arrays; the state is the profile, walls and beyond included."""
    edges = (grid.planes, grid.rows, grid.columns)
    spans = list(zip(edges, cell.first, cell.extent, strict=True))
    z, y, x = (place(edge, first, count, AROUND) for edge, first, count in spans)
    state = np.stack([profile(height, y, x) for height in z])
    factors = tuple(mode(edge, first, count, 0) for edge, first, count in spans)
    assert len(factors) == 3
    return CellFields(cell, state, np.zeros((*cell.extent, COMPONENTS)), factors)


def cell_deviation(grid: Grid, fields: CellFields, amplitudes: Array) -> float:
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
        self, comm: MPI.Comm, part: Multipartition, fields: Sequence[CellFields], waiting: Waiting
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
