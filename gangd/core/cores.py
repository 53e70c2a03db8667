"""Nodes and cores as numbers, who shares a core with whom, and what the core refuses.

Every core of the cluster has a number, so that sharing is arithmetic on arrays.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


class CoreError(Exception):
    """Root of the core's exceptions; the program around it is at fault, or what it passes on is wrong."""


class InvalidEvent(CoreError):  # noqa: N818 - the event is what is invalid
    """The event contradicts the state or itself; the message says how. Nothing was changed."""


class InvalidTransition(CoreError):  # noqa: N818 - the word says it
    """A state machine was asked for a transition that its table does not have: an error in the core."""


class InvalidSettings(CoreError):  # noqa: N818 - the word says it
    """Settings that cannot be obeyed; the message says which and what is allowed."""


@dataclass(frozen=True, slots=True)
class CoreSet:
    """The cores of a job, in the numbers of one ``CoreMap``; compares and hashes fast.

    Attributes
    ----------
    packed
        Ascending core numbers as the bytes of an int32 array.
    nodes
        Ascending numbers of the nodes that they are on.
    """

    packed: bytes
    nodes: tuple[int, ...] = field(compare=False)

    def numbers(self) -> NDArray[np.int32]:
        """Core numbers, ascending; read-only."""
        return np.frombuffer(self.packed, dtype=np.int32)


class CoreMap:
    """Numbers for the nodes and cores of a cluster; it grows, and numbers once given out stay.

    A node that turns out to have more cores than before gets new core numbers: pack its jobs again.
    """

    def __init__(self, nodes: Mapping[str, int] | None = None) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._first: list[int] = []
        self._cores: list[int] = []
        self._seats: dict[str, list[int]] = {}
        self.total_cores = 0
        for name, cores in (nodes or {}).items():
            self.add(name, cores)

    def add(self, name: str, cores: int) -> bool:
        """Make node ``name`` with ``cores`` cores known; True if numbers were given out."""
        if cores < 1:
            raise InvalidEvent(f"node {name} has {cores} cores; at least 1 is needed")
        number = self._numbers.get(name)
        if number is not None and self._cores[number] >= cores:
            return False
        if number is None:
            self._numbers[name] = len(self._names)
            self._names.append(name)
            self._first.append(self.total_cores)
            self._cores.append(cores)
        else:
            self._first[number], self._cores[number] = self.total_cores, cores
        self.total_cores += cores
        return True

    def add_seats(self, name: str, count: int) -> None:
        """Let a node have so many seats at least: numbers that are no cores, which jobs hold as if they were.

        Two jobs with the same seat never share a slice, whatever cores they have.
        """
        seats = self._seats.setdefault(name, [])
        more = count - len(seats)
        if more > 0:
            seats.extend(range(self.total_cores, self.total_cores + more))
            self.total_cores += more

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def name(self, number: int) -> str:
        """Return the name of node ``number``."""
        return self._names[number]

    def number(self, name: str) -> int:
        """Return the number of node ``name``; raises ``InvalidEvent`` if it is not known."""
        try:
            return self._numbers[name]
        except KeyError:
            raise InvalidEvent(f"node {name} is not known") from None

    def pack(
        self, placement: Mapping[str, Iterable[int]], seats: Mapping[str, Iterable[int]] | None = None
    ) -> CoreSet:
        """Core set of ``{node name: core indices on it}``, and of seats there (``add_seats``) by number.

        Raises
        ------
        InvalidEvent
            A node is unknown, a core index is beyond the node's cores, or there is no core at all.
        """
        cores: set[int] = set()
        nodes = []
        for name, indices in placement.items():
            number = self.number(name)
            here = set(indices)
            if not here or min(here) < 0 or max(here) >= self._cores[number]:
                raise InvalidEvent(
                    f"node {name} has cores 0 to {self._cores[number] - 1}, not {sorted(here)}"
                )
            first = self._first[number]
            cores.update(first + index for index in here)
            nodes.append(number)
        if not nodes:
            raise InvalidEvent("a placement without cores")
        for name, places in (seats or {}).items():
            cores.update(self._seats[name][place] for place in places)
        return CoreSet(np.array(sorted(cores), dtype=np.int32).tobytes(), tuple(sorted(nodes)))

    def counts(self, cores: CoreSet) -> list[int]:
        """How many cores there are on each of ``cores.nodes``; seats are not among them."""
        first = np.array([self._first[node] for node in cores.nodes])
        end = first + [self._cores[node] for node in cores.nodes]
        numbers = cores.numbers()
        counts: list[int] = (np.searchsorted(numbers, end) - np.searchsorted(numbers, first)).tolist()
        return counts

    def unpack(self, cores: CoreSet) -> dict[str, list[int]]:
        """Core indices by node name, the reverse of ``pack``; seats are not among them."""
        placement: dict[str, list[int]] = {}
        numbers = cores.numbers()
        for node in cores.nodes:
            first = self._first[node]
            here = numbers[(numbers >= first) & (numbers < first + self._cores[node])]
            placement[self._names[node]] = (here - first).tolist()
        return placement


EMPTY = -1
BULK_SHARE = 8
BULK_LEAST = 48


class ConflictGraph:
    """Neighbours of each slot: the other slots that hold at least one of its cores.

    Attributes
    ----------
    neighbours
        By slot, the ascending slots that it shares a core with.
    crowd
        By slot, how many slots sit on its most crowded core, itself included (int64).
    """

    def __init__(self) -> None:
        self.neighbours: list[list[int]] = []
        self.crowd: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._table: NDArray[np.int32] = np.full((0, 2), EMPTY, dtype=np.int32)
        self._sets: dict[int, CoreSet] = {}

    def update(self, changes: Mapping[int, CoreSet | None], total_cores: int) -> set[int]:
        """Give slots their cores (None: the slot is gone) and return the slots whose neighbours changed.

        Parameters
        ----------
        changes
            New core set by slot.
        total_cores
            ``CoreMap.total_cores``: core numbers are below it.
        """
        self._grow(max(changes, default=-1) + 1, total_cores)
        if len(changes) > max(BULK_LEAST, len(self._sets) // BULK_SHARE):
            return self._rebuild(changes)
        dirty: set[int] = set()
        for slot, cores in changes.items():
            dirty |= self._remove(slot)
            if cores is not None:
                dirty |= self._add(slot, cores)
        for slot in dirty:
            self.crowd[slot] = self._crowd_of(slot)
        return dirty

    def _grow(self, slots: int, cores: int) -> None:
        if slots > len(self.neighbours):
            missing = max(slots, 2 * len(self.neighbours)) - len(self.neighbours)
            self.neighbours.extend([] for _ in range(missing))
            self.crowd = np.concatenate((self.crowd, np.zeros(missing, dtype=np.int64)))
        if cores > len(self._table):
            rows = np.full((cores - len(self._table), self._table.shape[1]), EMPTY, dtype=np.int32)
            self._table = np.concatenate((self._table, rows))

    def _remove(self, slot: int) -> set[int]:
        cores = self._sets.pop(slot, None)
        if cores is None:
            return set()
        numbers = cores.numbers()
        rows = self._table[numbers]
        rows[rows == slot] = EMPTY
        self._table[numbers] = rows
        former = self.neighbours[slot]
        for other in former:
            del self.neighbours[other][bisect_left(self.neighbours[other], slot)]
        self.neighbours[slot] = []
        return {slot, *former}

    def _add(self, slot: int, cores: CoreSet) -> set[int]:
        numbers = cores.numbers()
        rows = self._table[numbers]
        if not (rows == EMPTY).any(axis=1).all():
            self._table = np.concatenate((self._table, np.full_like(self._table, EMPTY)), axis=1)
            rows = self._table[numbers]
        others = [int(other) for other in np.unique(rows) if other != EMPTY]
        rows[np.arange(len(rows)), np.argmax(rows == EMPTY, axis=1)] = slot
        self._table[numbers] = rows
        self._sets[slot] = cores
        self.neighbours[slot] = others
        for other in others:
            insort(self.neighbours[other], slot)
        return {slot, *others}

    def _crowd_of(self, slot: int) -> int:
        cores = self._sets.get(slot)
        return 0 if cores is None else int((self._table[cores.numbers()] != EMPTY).sum(axis=1).max())

    def _rebuild(self, changes: Mapping[int, CoreSet | None]) -> set[int]:
        for slot, cores in changes.items():
            if cores is None:
                self._sets.pop(slot, None)
            else:
                self._sets[slot] = cores
        former = self.neighbours
        self._fill_table()
        self.neighbours = self._edges(len(former))
        dirty = {
            slot for slot, (old, new) in enumerate(zip(former, self.neighbours, strict=True)) if old != new
        }
        return dirty | set(changes)

    def _fill_table(self) -> None:
        """Seat every slot on its cores: a slot whose seat is taken moves to the next column."""
        self.crowd[:] = 0
        if not self._sets:
            self._table[:] = EMPTY
            return
        lengths = np.array([len(cores.packed) // 4 for cores in self._sets.values()])
        slots = np.fromiter(self._sets, dtype=np.int32, count=len(self._sets))
        numbers = np.frombuffer(b"".join(cores.packed for cores in self._sets.values()), dtype=np.int32)
        columns = []
        core, owner = numbers, np.repeat(slots, lengths)
        while len(core):
            column = np.full(len(self._table), EMPTY, dtype=np.int32)
            column[core] = owner
            columns.append(column)
            standing = column[core] != owner
            core, owner = core[standing], owner[standing]
        while len(columns) < 2:
            columns.append(np.full(len(self._table), EMPTY, dtype=np.int32))
        self._table = np.stack(columns, axis=1)
        crowd = (self._table != EMPTY).sum(axis=1)
        self.crowd[slots] = np.maximum.reduceat(crowd[numbers], np.cumsum(lengths) - lengths)

    def _edges(self, slots: int) -> list[list[int]]:
        """Neighbour lists from the table: every two columns of it are edges."""
        codes = []
        width = self._table.shape[1]
        for left in range(width):
            for right in range(left + 1, width):
                one, other = self._table[:, left], self._table[:, right]
                both = (one != EMPTY) & (other != EMPTY)
                pairs = np.stack((one[both], other[both])).astype(np.int64)
                fresh = np.ones(pairs.shape[1], dtype=bool)
                fresh[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)
                codes += [
                    pairs[0, fresh] * slots + pairs[1, fresh],
                    pairs[1, fresh] * slots + pairs[0, fresh],
                ]
        edges = np.unique(np.concatenate(codes)) if codes else np.zeros(0, dtype=np.int64)
        ends = np.searchsorted(edges, np.arange(slots + 1, dtype=np.int64) * slots).tolist()
        targets = (edges % slots).tolist()
        return [targets[begin:end] for begin, end in pairwise(ends)]
