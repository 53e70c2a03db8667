"""Who shares a core with whom: the conflict graph, kept up to date as gangs come and go.

Gangs are known by *slots*, small integers that the scheduler gives out. The graph keeps a table of which
slots sit on each core. A few changes are worked in one by one; many at once rebuild the table and all
edges with array operations. Both ways give the same graph (property-tested).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gangd.core.terms.cores import CoreSet

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
