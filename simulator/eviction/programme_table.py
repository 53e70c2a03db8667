"""The dynamic programme (CoSim, Algorithm 1): one table answers every deadline, and every K up to one.

``best[t][n]`` is the least loss with which items from some item on free exactly n nodes in exactly t steps of
checkpoints. Items are added from the last to the first; each layer keeps one byte a cell, the option that was
taken. The final minimum is lexicographic: loss, time, nodes, number of jobs. What is left of a tie is settled
job by job in their order: kill before application before system checkpoint before keeping the job. Where
Algorithm 1 has the nodes up to all nodes M, K + the largest item - 1 suffice for one K: of a set that frees
more, some item could be left out, at no greater loss or time. Nodes are counted in units of the items' common
divisor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foundation.errors import UsageError
from foundation.units import counted
from simulator.eviction.baselines import run
from simulator.eviction.eviction_problem import EvictionChoice, Question, loss_parts, whole_losses
from simulator.jit.compilation import kernel
from simulator.jit.field_records import Ints

Chosen = tuple[tuple[int, EvictionChoice], ...]
"""Places of jobs among those of the question, and what becomes of them."""


@dataclass(frozen=True, slots=True)
class ItemOption:
    """One way to take an item: nodes freed, steps of checkpoints, whole parts of loss, and the choices."""

    nodes: int
    steps: int
    loss: int
    chosen: Chosen


Item = Sequence[ItemOption]
"""Options in order of preference where they cost the same."""


def job_items(question: Question) -> list[Item]:
    """Return one item a job: kill before application before system checkpoint (Algorithm 1)."""
    losses = whole_losses(question)
    return [job_item(question, place, losses[place]) for place in range(len(question.jobs))]


def job_item(question: Question, place: int, loss: int | None) -> Item:
    """Return the item of the job at a place; its loss is in whole parts, None if it may not be killed."""
    job = question.jobs[place]
    found = []
    for choice in EvictionChoice:
        steps = question.steps_of(job.minutes(choice))
        if steps is not None:
            costs = (loss or 0) if choice is EvictionChoice.KILL else 0
            found.append(ItemOption(job.nodes, steps, costs, ((place, choice),)))
    return found


Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

FAR = 1 << 62
MOST_OPTIONS = 250
CHUNK = 3
MOST_CELLS = 1 << 30
PLAIN_CELLS = 60_000
"""So many cells are gone through in plain Python, in less time than numba takes to be loaded."""


@kernel
def fill(first: Ints, chunks: Ints, most: Ints, best: Ints, other: Ints, taken: Bytes) -> None:
    """Fill the table.

    Parameters
    ----------
    first
        Where the chunks of each item begin, and where the last ones end; shape (items + 1,).
    chunks
        Up to three options that free the same nodes: nodes, the number of the first one in its item, three
        times steps, three times cost; shape (chunks, 8). What is no option has more steps than there are.
    most
        How many nodes the items from each on can free, at most those of the table; shape (items,).
    best, other
        Two layers, shape (steps + 1, nodes + 1); the last layer written is ``best`` if the number of items is
        even, else ``other``.
    taken
        Shape (items, steps + 1, nodes + 1): the option taken of an item, from 1; 0 for none.
    """
    times, rows = best.shape
    for t in range(times):
        for n in range(rows):
            best[t, n] = FAR
            other[t, n] = FAR
    best[0, 0] = 0
    old, new = best, other
    for item in range(len(first) - 2, -1, -1):
        for chunk in range(first[item + 1] - 1, first[item] - 1, -1):
            if chunk == first[item + 1] - 1:
                take_first(old, new, taken, item, chunks[chunk], most[item] + 1)
            else:
                take_more(old, new, taken, item, chunks[chunk], most[item] + 1)
        old, new = new, old


@kernel
def take_first(old: Ints, new: Ints, taken: Bytes, item: int, chunk: Ints, rows: int) -> None:
    """Take one of three options, or none, wherever that costs no more; costs are above zero, so FAR is FAR.

    Written out, so that several cells are one instruction.
    """
    freed, number, s0, s1, s2, c0, c1, c2 = chunk
    for t in range(len(old)):
        for n in range(rows):
            least = old[t, n]
            choice = 0
            if n >= freed:
                if s2 <= t:
                    value = old[t - s2, n - freed] + c2
                    if value <= least:
                        least, choice = value, number + 2
                if s1 <= t:
                    value = old[t - s1, n - freed] + c1
                    if value <= least:
                        least, choice = value, number + 1
                if s0 <= t:
                    value = old[t - s0, n - freed] + c0
                    if value <= least:
                        least, choice = value, number
            new[t, n] = least
            taken[item, t, n] = choice


@kernel
def take_more(old: Ints, new: Ints, taken: Bytes, item: int, chunk: Ints, rows: int) -> None:
    """Take one of three further options instead, wherever that costs no more."""
    freed, number = chunk[0], chunk[1]
    for k in range(2, -1, -1):
        spent, cost = chunk[2 + k], chunk[5 + k]
        for t in range(spent, len(old)):
            for n in range(freed, rows):
                value = old[t - spent, n - freed] + cost
                if value <= new[t, n]:
                    new[t, n] = value
                    taken[item, t, n] = number + k


@dataclass(frozen=True, slots=True)
class ProgrammeCell:
    """The best cell for a deadline: steps, units of nodes, and what it costs."""

    t: int
    n: int
    value: int


class ProgrammeTable:
    """The filled table of a question.

    Parameters
    ----------
    question
        What is asked; its K bounds the table.
    items
        The items.
    every_need
        Whether it is to answer every K up to all nodes, not only up to that of the question.

    Raises
    ------
    UsageError
        The table would be too large.
    """

    def __init__(self, question: Question, items: Sequence[Item], *, every_need: bool = False) -> None:
        self._question = question
        self._items = items
        options = [option for item in items for option in item]
        self._unit = math.gcd(*(option.nodes for option in options)) or 1
        self._weight = len(question.jobs) + 1
        self._rows = self._most_nodes(question.need, every_need=every_need) + 1
        self._fill()

    @property
    def cells(self) -> int:
        """Cells of all layers."""
        return len(self._items) * (self._question.steps + 1) * self._rows

    def by_deadline(self, need: int | None = None) -> list[dict[int, EvictionChoice] | None]:
        """Return the choices by place of the job for every deadline in steps; None where it isn't possible.

        Parameters
        ----------
        need
            K, at most that of the question unless the table answers every need.
        """
        least = -(-max(0, self._question.need if need is None else need) // self._unit)
        if least >= self._rows:
            return [None] * (self._question.steps + 1)
        found: list[dict[int, EvictionChoice] | None] = []
        known: ProgrammeCell | None = None
        choices: dict[int, EvictionChoice] | None = None
        for t in range(self._question.steps + 1):
            cell = self._best_at(t, least)
            if cell is not None and (
                known is None or cell.value // self._weight < known.value // self._weight
            ):
                known, choices = cell, self._choices(cell)
            found.append(choices)
        return found

    def surface(self) -> tuple[Ints, Floats]:
        """Return every K in nodes, and the least loss in node-hours for each K and each deadline in steps.

        Of a table that answers every K; NaN where a K is not possible. Shapes (rows,), (rows, steps + 1).
        """
        least = np.minimum.accumulate(np.minimum.accumulate(self._best[:, ::-1], axis=1)[:, ::-1], axis=0).T
        loss = least // self._weight / loss_parts(self._question)
        return np.arange(self._rows) * self._unit, np.where(least < FAR, loss, np.nan)

    def _most_nodes(self, need: int, *, every_need: bool) -> int:
        largest = self._largest()
        total = sum(largest)
        if every_need:
            return total
        return min(total, max(0, -(-max(0, need) // self._unit) + max(largest, default=0) - 1))

    def arguments(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Bytes]:
        """Return the arguments of ``fill``: the items, and buffers for layers and choices."""
        chunks = [self._chunks(item) for item in self._items]
        first = np.cumsum([0, *map(len, chunks)], dtype=np.int64)
        flat = [chunk for of_item in chunks for chunk in of_item]
        rows = np.array(flat, dtype=np.int64).reshape(-1, 8)
        times = self._question.steps + 1
        layers = np.empty((2, times, self._rows), dtype=np.int64)
        taken = np.empty((len(self._items), times, self._rows), dtype=np.uint8)
        most = np.minimum(np.cumsum(self._largest()[::-1], dtype=np.int64)[::-1], self._rows - 1)
        return first, rows, most, layers[0], layers[1], taken

    def _fill(self) -> None:
        if self.cells > MOST_CELLS:
            raise UsageError(
                f"{counted(len(self._items), 'job')}, {self._question.steps + 1} deadlines and "
                f"{self._rows * self._unit:,} nodes are too many for one table: take a coarser granularity, "
                "a nearer deadline or fewer nodes"
            )
        arguments = self.arguments()
        run(fill, self.cells <= PLAIN_CELLS, *arguments)
        self._best = arguments[3 + len(self._items) % 2]
        self._taken = arguments[5]

    def _chunks(self, item: Item) -> list[list[int]]:
        """Return the options of an item, up to three neighbours that free the same nodes at a time."""
        assert len(item) <= MOST_OPTIONS
        none = self._question.steps + 1
        found: list[list[int]] = []
        for number, option in enumerate(item, start=1):
            nodes = option.nodes // self._unit
            if not found or found[-1][0] != nodes or number - found[-1][1] == CHUNK:
                found.append([nodes, number, none, none, none, 0, 0, 0])
            place = number - found[-1][1]
            found[-1][2 + place] = option.steps
            found[-1][5 + place] = option.loss * self._weight + len(option.chosen)
        # An item of which nothing can be taken has a layer all the same.
        return found or [[0, 1, none, none, none, 0, 0, 0]]

    def _largest(self) -> list[int]:
        return [max((option.nodes for option in item), default=0) // self._unit for item in self._items]

    def _best_at(self, t: int, least: int) -> ProgrammeCell | None:
        """Return the cell of least loss, then fewest nodes, with exactly ``t`` steps."""
        values = self._best[t, least:]
        n = int(np.argmin(values // self._weight))
        value = int(values[n])
        return ProgrammeCell(t, least + n, value) if value < FAR else None

    def _choices(self, cell: ProgrammeCell) -> dict[int, EvictionChoice]:
        t, n = cell.t, cell.n
        choices: dict[int, EvictionChoice] = {}
        for number, item in enumerate(self._items):
            taken = int(self._taken[number, t, n])
            if taken:
                option = item[taken - 1]
                choices.update(option.chosen)
                t, n = t - option.steps, n - option.nodes // self._unit
        assert (t, n) == (0, 0)
        return choices
