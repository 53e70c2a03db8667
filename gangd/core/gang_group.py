"""Gangs that contend with each other, and which of them own a slice.

A group of gangs that contend with each other, directly or through others, and its composed slices.

The state of a group (leads, waits, turns, who is woken) before a slice decides everything after it; once the
state has been the same twice, the slices between repeat for ever and need not be composed again.

Groups that were composed together lie side by side in one ``SliceBlock``: thousands of small groups cost a
few array operations, not thousands.

Which gangs own a slice: virtual time, and how slices are composed.

Virtual time counts what a gang was given, in ``UNIT / weight`` a slice, while it contends. For each slice:

1. *Overdue* gangs come first, the longest waiting before the others. A gang is overdue when it has
   waited ``(c - 1) x sum over its contenders x of max(q_x, q weight_x / weight) + q_x - 1`` slices, where
   ``c`` is the number of gangs on its most crowded core and ``q`` the slices of a turn; with equal weights
   and turns of one slice, ``c - 1`` times its contenders.
2. Then gangs that just woke or entered awake, once, unless they are as far ahead as a lead may be.
3. Then gangs that are in their turn: one whose quantum is ``q`` slices goes on for as many.
4. Then the others by virtual time; of equals the one that waits longer, then the lower gang id.

In this order every gang whose cores are all free is placed, so the first is always placed, no core idles
that a rotated gang could use, and wide gangs do not starve. After the slice, owners are charged, and
no gang may be further ahead of the last of its contenders than ``c`` of its own quanta. A turn decides when a
gang gets its slices, not how many: in the long run that is its weight's share, whatever the quanta are.

*No gang waits longer than c times its contenders* (equal weights, turns of one slice; ``d`` = the most
contenders it had while it waited). It is overdue after at most ``(c - 1) d`` slices. From then on only gangs
that are overdue and have waited longer can take a slice from it. Those were contenders when its wait began,
at most ``d``, and each can do so once, for having run it waits shorter. ``(c - 1) d + d = c d``. A gang that
arrives or wakes meanwhile waits shorter and cannot come before it. With longer turns the first term is
larger, and the second is not: who is overdue ends the turns of others.

*No gang is frozen longer than the cap.* One that has waited ``cap`` slices runs in the next in any case,
together with the owner if need be. It is treated as overdue from half of the cap on, so this stays rare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KEPT_SLICES = 32

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class SliceBlock:
    """Slices of gangs side by side; row ``r`` belongs to slice ``first_slice + r``.

    Attributes
    ----------
    slots
        The gangs, shape (n,): group by group, in a group ascending by gang id.
    run
        Who owns each composed slice, shape (t, n).
    times, waits, stay, woken
        Virtual time, slices waited, slices left of its turn, and whether first in line, before each composed
        slice and after the last, shape (t + 1, n).
    """

    first_slice: int
    slots: Ints
    run: Bools
    times: Ints
    waits: Ints
    stay: Ints
    woken: Bools
    _held: Ints | None = None

    def held_before(self, rows: Ints, columns: Ints, periods: Ints) -> Ints:
        """Count the rows before ``rows[i]`` in which gang ``columns[i]`` is held; shape as ``rows``.

        Past the last row a gang repeats its last ``periods[i]`` rows, or is never held if that is 0.
        """
        if self._held is None:
            self._held = np.zeros((len(self.run) + 1, len(self.slots)), dtype=np.int64)
            np.cumsum(~self.run, axis=0, out=self._held[1:])
        held, end = self._held, len(self.run)
        counts: Ints = held[np.minimum(rows, end), columns]
        beyond = np.flatnonzero((rows > end) & (periods > 0))
        if len(beyond):
            column, period = columns[beyond], periods[beyond]
            rounds, rest = np.divmod(rows[beyond] - end, period)
            before = held[end - period, column]
            counts[beyond] += (
                rounds * (held[end, column] - before) + held[end - period + rest, column] - before
            )
        return counts


class Frame(NamedTuple):
    """What composing needs to know of gangs side by side, and what stays while their groups do.

    Attributes
    ----------
    edges
        Slots that share a core with each gang, gang by gang, shape (e,).
    lengths
        How many each, shape (n,).
    charge
        Virtual time of a slice, shape (n,).
    patience
        Slices after which a gang is overdue, shape (n,).
    most_ahead
        Greatest lead, shape (n,).
    turn
        Slices that it runs at a stretch, shape (n,).
    """

    edges: Ints
    lengths: Ints
    charge: Ints
    patience: Ints
    most_ahead: Ints
    turn: Ints


@dataclass(slots=True, eq=False)
class GangGroup:
    """The gangs ``begin`` to ``end`` of a block.

    Attributes
    ----------
    name
        Least gang id.
    period
        The last ``period`` slices repeat for ever; None while no repetition is known.
    pure
        Whether the slices before those are part of the same repetition.
    published_end
        Slices below are published; None if published as repeating.
    settled
        Slices below are in the account of frozen time, but for ``backlog``.
    backlog
        Held slices by gang that were forgotten before they were accounted; None if there are none.
    frame
        Kept for a group that has to be composed again and again.
    """

    name: int
    block: SliceBlock
    begin: int
    end: int
    period: int | None = None
    pure: bool = False
    published_end: int | None = None
    settled: int = field(init=False)
    backlog: Ints | None = None
    frame: Frame | None = None

    def __post_init__(self) -> None:
        self.settled = self.block.first_slice

    @property
    def slots(self) -> Ints:
        """The gangs' slots."""
        return self.block.slots[self.begin : self.end]

    @property
    def end_slice(self) -> int:
        """First slice that is not composed."""
        return self.block.first_slice + len(self.block.run)

    def row(self, number: int) -> int | None:
        """Row that holds for slice ``number``; None before the first, and past the end without a period."""
        row = number - self.block.first_slice
        return self._fold(row) if row >= 0 else None

    def held(self, number: int) -> list[int]:
        """Slots that are held in slice ``number``; none of them if nothing is composed for it."""
        row = self.row(number)
        if row is None:
            return []
        held: list[int] = self.slots[~self.block.run[row, self.begin : self.end]].tolist()
        return held

    def state_row(self, number: int) -> int:
        """Row of the state before slice ``number``; the last one if nothing is composed that far."""
        row = self._fold(max(0, number - self.block.first_slice))
        return len(self.block.run) if row is None else row

    def repeats_from(self, number: int) -> bool:
        """Whether the slices from ``number`` on are a repetition."""
        if self.period is None:
            return False
        return self.pure or number >= self.end_slice - self.period

    def rows(self, number: int) -> list[int]:
        """Rows of the block from slice ``number`` on: one round of the repetition, or what is composed."""
        begin = number - self.block.first_slice
        if self.period is not None and self.repeats_from(number):
            folded = [self._fold(begin + place) for place in range(self.period)]
            return [row for row in folded if row is not None]
        return list(range(begin, len(self.block.run)))

    def go_on(self, rows: SliceBlock) -> None:
        """Append composed slices of this group alone, and forget all but the newest ones."""
        old, mine = self.block, slice(self.begin, self.end)
        drop = max(0, len(old.run) + len(rows.run) - KEPT_SLICES)
        first = old.first_slice + drop
        if drop and self.settled < first:
            self.backlog = settle([self], first)[1]
        self.block = SliceBlock(
            first,
            old.slots[mine],
            np.concatenate((old.run[:, mine], rows.run))[drop:],
            np.concatenate((old.times[:, mine], rows.times[1:]))[drop:],
            np.concatenate((old.waits[:, mine], rows.waits[1:]))[drop:],
            np.concatenate((old.stay[:, mine], rows.stay[1:]))[drop:],
            np.concatenate((old.woken[:, mine], rows.woken[1:]))[drop:],
        )
        self.begin, self.end = 0, len(self.block.slots)

    def find_period(self) -> None:
        """Look for the shortest repetition at the end of the slices that are kept."""
        block, mine = self.block, slice(self.begin, self.end)
        times, waits, woken, run = block.times[:, mine], block.waits[:, mine], block.woken[:, mine], block.run
        stay = block.stay[:, mine]
        last = times[-1] - times[-1].min()
        for period in range(1, len(run) + 1):
            if (
                np.array_equal(waits[-1], waits[-1 - period])
                and np.array_equal(stay[-1], stay[-1 - period])
                and np.array_equal(last, times[-1 - period] - times[-1 - period].min())
                and not woken[-1 - period].any()
            ):
                self.period = period
                self.pure = bool((run[:-period, mine] == run[period:, mine]).all())
                return

    def _fold(self, row: int) -> int | None:
        """Row of ``run`` that holds for a row that may lie past its end; None if none does."""
        if row < len(self.block.run):
            return row
        if self.period is None:
            return None
        begin = len(self.block.run) - self.period
        return begin + (row - begin) % self.period


def by_block(groups: Iterable[GangGroup]) -> list[list[GangGroup]]:
    """Sort groups by the block that they lie in."""
    blocks: dict[int, list[GangGroup]] = {}
    for group in groups:
        blocks.setdefault(id(group.block), []).append(group)
    return list(blocks.values())


def settle(groups: Sequence[GangGroup], end: int) -> tuple[Ints, Ints]:
    """Count the slices before ``end`` in which gangs were held and that no call counted yet.

    Parameters
    ----------
    groups
        Groups of one block.

    Returns
    -------
    slots, held
        The gangs of all groups in their order, and their new held slices.
    """
    block = groups[0].block
    first = block.first_slice
    columns, sizes = _columns(groups)
    begin = np.array([max(group.settled, first) - first for group in groups])
    stop = np.maximum(begin, end - first)
    if len(groups) == 1 and stop[0] <= len(block.run):
        held = (~block.run[begin[0] : stop[0], groups[0].begin : groups[0].end]).sum(axis=0, dtype=np.int64)
    else:
        periods = np.repeat([group.period or 0 for group in groups], sizes)
        held = block.held_before(np.repeat(stop, sizes), columns, periods)
        held -= block.held_before(np.repeat(begin, sizes), columns, periods)
    place = 0
    for group in groups:
        group.settled = max(end, group.settled)
        if group.backlog is not None:
            held[place : place + len(group.backlog)] += group.backlog
            group.backlog = None
        place += group.end - group.begin
    return block.slots[columns], held


def states(groups: Sequence[GangGroup], number: int) -> tuple[Ints, Ints, Ints, Ints, Bools]:
    """State before slice ``number``.

    Parameters
    ----------
    groups
        Groups of one block.

    Returns
    -------
    slots, times, waits, stay, woken
        The gangs of all groups in their order, and their state; the least time of each group is 0.
    """
    block = groups[0].block
    columns, sizes = _columns(groups)
    rows = np.repeat([group.state_row(number) for group in groups], sizes)
    times = block.times[rows, columns]
    times -= np.repeat(np.minimum.reduceat(times, np.cumsum(sizes) - sizes), sizes)
    waits, stay, woken = (kept[rows, columns] for kept in (block.waits, block.stay, block.woken))
    return block.slots[columns], times, waits, stay, woken


def _columns(groups: Sequence[GangGroup]) -> tuple[Ints, Ints]:
    """Columns of the block that the groups take, and how many each."""
    begins = np.array([group.begin for group in groups], dtype=np.int64)
    sizes = np.array([group.end for group in groups], dtype=np.int64) - begins
    first = np.cumsum(sizes) - sizes
    return np.repeat(begins - first, sizes) + np.arange(int(sizes.sum())), sizes


UNIT = 720_720  # divisible by 1 to 16: whole weights charge without rounding
FAR = np.int64(2**62)
WAIT_BITS = 20
WAIT_MASK = (1 << WAIT_BITS) - 1


class ComposeRules(NamedTuple):
    """What composing goes by.

    Attributes
    ----------
    neighbours
        By slot: slots that share a core, in the groups or not.
    charge, crowd, turns
        By slot: virtual time of a slice; gangs on the most crowded core; slices of a turn.
    cap_slices
        Slices after which a gang that waits runs in any case.
    """

    neighbours: Sequence[list[int]]
    charge: Ints
    crowd: Ints
    turns: Ints
    cap_slices: int


def compose(groups: Sequence[GangGroup], rules: ComposeRules, slices: int) -> None:
    """Compose the next ``slices`` slices of ``groups``, which share no gang, and look for repetition."""
    batch = _Batch(groups, partial(_frame, rules), rules.cap_slices)
    for _ in range(slices):
        batch.step(rules.neighbours)
    batch.store()


def _frame(rules: ComposeRules, slots: Ints) -> Frame:
    """Frame of whole groups side by side."""
    neighbours, charge, crowd, turns, cap_slices = rules
    lists = [neighbours[slot] for slot in slots.tolist()]
    lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    edges = np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=int(lengths.sum()))
    member = np.zeros(len(neighbours), dtype=np.bool_)
    member[slots] = True
    own, crowded, turn = charge[slots], crowd[slots], turns[slots]
    stretch = np.maximum(turns[edges], np.repeat(own * turn, lengths) / charge[edges]) + turns[edges] - 1
    rivals = np.add.reduceat(np.where(member[edges], stretch, 0.0), np.cumsum(lengths) - lengths)
    patience = np.ceil((crowded - 1) * rivals - 1e-9).astype(np.int64)
    patience = np.minimum(np.maximum(patience, 1), max(1, cap_slices // 2))
    return Frame(edges, lengths, own, patience, crowded * own * turn, turn)


class _Batch:
    """The gangs of some groups side by side in arrays."""

    def __init__(self, groups: Sequence[GangGroup], frame: Callable[[Ints], Frame], cap_slices: int) -> None:
        self.groups = groups
        self.cap_slices = cap_slices
        self.run: list[Bools] = []
        sizes = np.array([group.end - group.begin for group in groups])
        self.starts = np.cumsum(sizes) - sizes
        self.group_of = np.repeat(np.arange(len(groups)), sizes)
        block = groups[0].block
        begins = np.array([group.begin for group in groups])
        self.fresh = len(block.run) == 0 and all(group.block is block for group in groups)
        if self.fresh and np.array_equal(begins, self.starts):
            self.slots, times, waits, woken = block.slots, block.times[-1], block.waits[-1], block.woken[-1]
            stay = block.stay[-1]
            self.frame = frame(self.slots)
        else:
            self.fresh = False
            mine = [(group.block, slice(group.begin, group.end)) for group in groups]
            self.slots = np.concatenate([block.slots[part] for block, part in mine])
            times = np.concatenate([block.times[-1, part] for block, part in mine])
            waits = np.concatenate([block.waits[-1, part] for block, part in mine])
            woken = np.concatenate([block.woken[-1, part] for block, part in mine])
            stay = np.concatenate([block.stay[-1, part] for block, part in mine])
            for group in groups:
                if group.frame is None:
                    group.frame = frame(group.slots)
            frames = [group.frame for group in groups if group.frame is not None]
            self.frame = Frame(*(np.concatenate(column) for column in zip(*frames, strict=True)))
        self.times, self.waits, self.stay, self.woken = [times], [waits], [stay], [woken]
        self.edge_starts = np.cumsum(self.frame.lengths) - self.frame.lengths

    def step(self, neighbours: Sequence[list[int]]) -> None:
        """Compose one slice."""
        frame = self.frame
        times, waits, stay, woken = self.times[-1], self.waits[-1], self.stay[-1], self.woken[-1]
        relative = times - np.minimum.reduceat(times, self.starts)[self.group_of]
        key = (relative << (WAIT_BITS + 1)) | (1 << WAIT_BITS) | (WAIT_MASK - np.minimum(waits, WAIT_MASK))
        key[stay > 0] = 1
        key[woken] = 0
        overdue = waits >= frame.patience
        key[overdue] = -1 - waits[overdue]
        run = self._place(np.argsort(key, kind="stable"), neighbours) | (waits >= self.cap_slices)

        times = times + np.where(run, frame.charge, 0)
        by_slot = np.full(len(neighbours), FAR, dtype=np.int64)
        by_slot[self.slots] = times
        last = np.minimum.reduceat(by_slot[frame.edges], self.edge_starts)
        self.run.append(run)
        self.times.append(np.minimum(times, last + frame.most_ahead))
        self.waits.append(np.where(run, 0, waits + 1))
        self.stay.append(np.where(run, np.where(stay > 0, stay, frame.turn) - 1, 0))
        self.woken.append(woken & ~run)

    def _place(self, order: NDArray[np.intp], neighbours: Sequence[list[int]]) -> Bools:
        blocked = bytearray(len(neighbours))
        owners = []
        for slot in self.slots[order].tolist():
            if not blocked[slot]:
                owners.append(slot)
                for other in neighbours[slot]:
                    blocked[other] = 1
        owns = np.zeros(len(neighbours), dtype=np.bool_)
        owns[owners] = True
        placed: Bools = owns[self.slots]
        return placed

    def store(self) -> None:
        """Give the composed slices to their groups."""
        first = self.groups[0].end_slice
        run, times = np.stack(self.run), np.stack(self.times)
        waits, stay, woken = np.stack(self.waits), np.stack(self.stay), np.stack(self.woken)
        block = SliceBlock(first, self.slots, run, times, waits, stay, woken)
        periods, pure = self._periods(block)
        if self.fresh:
            for group, period, whole in zip(self.groups, periods, pure, strict=True):
                group.block = block
                group.period = period or None
                group.pure = whole
            return
        ends = [*self.starts[1:].tolist(), len(self.slots)]
        for group, begin, end in zip(self.groups, self.starts.tolist(), ends, strict=True):
            mine = (slice(None), slice(begin, end))
            state = (times[mine], waits[mine], stay[mine], woken[mine])
            group.go_on(SliceBlock(group.end_slice, self.slots[begin:end], run[mine], *state))
            group.find_period()

    def _periods(self, block: SliceBlock) -> tuple[list[int], list[bool]]:
        """Find, by group, the shortest repetition at the end or 0, and whether all before is part of it."""
        times, waits, woken, run = block.times, block.waits, block.woken, block.run
        stay = block.stay
        relative = times - np.minimum.reduceat(times, self.starts, axis=1)[:, self.group_of]
        periods = np.zeros(len(self.groups), dtype=np.int64)
        pure = np.zeros(len(self.groups), dtype=np.bool_)
        for period in range(1, len(times)):
            same = (relative[-1] == relative[-1 - period]) & (waits[-1] == waits[-1 - period])
            same &= stay[-1] == stay[-1 - period]
            fresh = (periods == 0) & np.logical_and.reduceat(same & ~woken[-1 - period], self.starts)
            if fresh.any():
                periods[fresh] = period
                alike = (run[:-period] == run[period:]).all(axis=0)
                pure |= fresh & np.logical_and.reduceat(alike, self.starts)
        return periods.tolist(), pure.tolist()
