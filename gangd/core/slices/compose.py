"""Which gangs own a slice: virtual time, and how slices are composed.

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

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangd.core.slices.group import Bools, Frame, GangGroup, Ints, SliceBlock

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
        """Place each gang of ``order`` whose cores are all free."""
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
