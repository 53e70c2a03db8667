"""What BT and SP share: an alternating-direction step on a multipartition, and the exchange of faces.

A step is: exchange faces, form the right-hand side, solve along all lines of each axis in turn, add the
change (Beam and Warming, AIAA Journal 16(4), 1978). A solve sweeps the slabs downwards and back
upwards; between two slabs each rank hands its lines' ends to one neighbour and takes those of another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workloads.rrba.cuts import Multipartition, PointGrid, RankCell, multipartition
from workloads.rrba.solvers.compiled_solvers import kernel
from workloads.rrba.solvers.solved_model import (
    COMPONENTS,
    DIFFUSION,
    DISSIPATION,
    Amplitude,
    adi_operator,
    couplings,
    forcing,
    mode,
    place,
    profile,
)
from workloads.rrba.solvers.step_solver import Array, StepSolver, WaitingTime

if TYPE_CHECKING:
    from mpi4py import MPI

Lines = tuple[int, int, int, int, int, int]
"""Points of a line, lines along the two other axes, and the strides of each, in values of flat data."""

# Fourth differences reach two points to either side.
AROUND = 2


def lines_of(cell: RankCell, axis: int) -> Lines:
    """Return a cell's lines along ``axis``."""
    _, rows, columns = cell.extent
    strides = (rows * columns * COMPONENTS, columns * COMPONENTS, COMPONENTS)
    axes = (axis, *(other for other in range(3) if other != axis))
    points, across, along = (cell.extent[each] for each in axes)
    return points, across, along, strides[axes[0]], strides[axes[1]], strides[axes[2]]


class LineKernels(NamedTuple):
    """How the systems along a line are solved.

    Parameters
    ----------
    eliminate, substitute
        Kernels: downwards along the lines of a cell, and upwards.
    carries
        Values a line hands on downwards and upwards.
    kept
        Values a point that the one leaves to the other.
    """

    eliminate: Callable[..., None]
    substitute: Callable[..., None]
    carries: tuple[int, int]
    kept: int


class AlternatingDirections(StepSolver):
    """One rank's cells; a subclass solves along the lines.

    Parameters
    ----------
    comm
        All ranks of the job, a square number.
    grid
        The job's grid.
    factors
        The implicit factor of each axis on the mode, in the order of the solves.
    kernels
        How lines are solved.
    """

    def __init__(
        self, comm: MPI.Comm, grid: PointGrid, factors: Sequence[Array], kernels: LineKernels
    ) -> None:
        super().__init__()
        self._comm = comm
        self._grid = grid
        self._part = multipartition(grid, comm.Get_size(), comm.Get_rank())
        self._fields = [make_fields(grid, cell) for cell in self._part.cells]
        self._faces = FaceExchange(comm, self._part, self._fields, self.waiting)
        self._weights: Array = DIFFUSION * couplings()
        self._exact = Amplitude(adi_operator(grid), list(factors))
        self._kernels = kernels
        self._kept = [np.empty(cell.points * kernels.kept) for cell in self._part.cells]
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
        """Invert the implicit operator on the change of all cells: along columns, rows and planes."""
        for axis in (2, 1, 0):
            self.sweep(axis)

    @abstractmethod
    def coefficients(self, axis: int, place: int) -> tuple[object, ...]:
        """Return those of the systems along the lines of ``axis`` in a cell, as ``eliminate`` takes them."""

    def change_square(self) -> float:
        """Return the sum of squares of the latest step's changes in this rank's cells."""
        flats = [each.change.reshape(-1) for each in self._fields]
        return float(sum(np.dot(flat, flat) for flat in flats))

    def deviation(self) -> float:
        """Return the largest difference from the exact solution in this rank's cells."""
        return max(cell_deviation(self._grid, each, self._exact.now) for each in self._fields)

    def sweep(self, axis: int) -> None:
        """Solve along all lines of ``axis``: slab after slab down, and back up."""
        cuts, eliminate, substitute = self._part.cuts, self._kernels.eliminate, self._kernels.substitute
        above, below = self._part.above[axis], self._part.below[axis]
        order = [self._part.cell_of_slab(axis, slab) for slab in range(cuts)]
        lines = [lines_of(self._fields[cell].cell, axis) for cell in order]
        sizes = [across * along for _, across, along, *_ in lines]
        data = [(self._fields[cell].change.reshape(-1), self._kept[cell]) for cell in order]
        down, up = self._kernels.carries
        arriving = np.zeros(sizes[0] * down)
        for slab, cell in enumerate(order):
            leaving = np.empty(sizes[slab] * down)
            eliminate(*data[slab], arriving, leaving, *self.coefficients(axis, cell), lines[slab])
            if slab + 1 < cuts:
                arriving = np.empty(sizes[slab + 1] * down)
                self._hand_on(leaving, below, arriving, above, 10 + axis)
        arriving = np.zeros(sizes[-1] * up)
        for slab in range(cuts - 1, -1, -1):
            leaving = np.empty(sizes[slab] * up)
            substitute(*data[slab], arriving, leaving, lines[slab])
            if slab > 0:
                arriving = np.empty(sizes[slab - 1] * up)
                self._hand_on(leaving, above, arriving, below, 20 + axis)

    def _hand_on(self, leaving: Array, to: int, arriving: Array, of: int, tag: int) -> None:
        with self.waiting:
            self._comm.Sendrecv(leaving, to, tag, arriving, of, tag)


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
            with self._waiting:
                self._comm.Sendrecv(each.outgoing, each.to, each.tag, each.incoming, each.of, each.tag)
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


@kernel(
    "void(float64[:,:,:,::1], float64[:,:,:,::1], float64[:,:,::1], float64,"
    " float64[::1], float64[::1], float64[::1], float64[::1])"
)
def right_hand_side(
    state: Array,
    change: Array,
    weights: Array,
    dissipation: float,
    force: Array,
    f: Array,
    g: Array,
    h: Array,
) -> None:
    """Set ``change`` to diffusion, dissipation and forcing of ``state``.

    ``weights`` are the couplings times dt / h^2, shape (3, 5, 5); ``force`` has five amplitudes of the mode
    ``f[k] g[j] h[i]``.
    """
    planes, rows, columns, _ = change.shape
    for k in range(planes):
        for j in range(rows):
            for i in range(columns):
                here = state[k + 2, j + 2, i + 2]
                a2, a1 = state[k, j + 2, i + 2], state[k + 1, j + 2, i + 2]
                b1, b2 = state[k + 3, j + 2, i + 2], state[k + 4, j + 2, i + 2]
                c2, c1 = state[k + 2, j, i + 2], state[k + 2, j + 1, i + 2]
                d1, d2 = state[k + 2, j + 3, i + 2], state[k + 2, j + 4, i + 2]
                e2, e1 = state[k + 2, j + 2, i], state[k + 2, j + 2, i + 1]
                g1, g2 = state[k + 2, j + 2, i + 3], state[k + 2, j + 2, i + 4]
                phi = f[k] * g[j] * h[i]
                for m in range(5):
                    total = force[m] * phi
                    far = a2[m] + b2[m] + c2[m] + d2[m] + e2[m] + g2[m]
                    near = a1[m] + b1[m] + c1[m] + d1[m] + e1[m] + g1[m]
                    total -= dissipation * (far - 4.0 * near + 18.0 * here[m])
                    for n in range(5):
                        twice = 2.0 * here[n]
                        total += weights[0, m, n] * (a1[n] - twice + b1[n])
                        total += weights[1, m, n] * (c1[n] - twice + d1[n])
                        total += weights[2, m, n] * (e1[n] - twice + g1[n])
                    change[k, j, i, m] = total


@kernel("void(float64[:,:,:,::1], float64[:,:,:,::1])")
def add(state: Array, change: Array) -> None:
    """Add ``change`` to the inner points of ``state``."""
    planes, rows, columns, _ = change.shape
    for k in range(planes):
        for j in range(rows):
            for i in range(columns):
                for m in range(5):
                    state[k + 2, j + 2, i + 2, m] += change[k, j, i, m]
