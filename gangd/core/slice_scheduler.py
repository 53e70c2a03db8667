"""All groups of contending gangs: who joins and leaves them, and their slices as time goes on.

Only what changed is worked out again. A change touches gangs; their groups and those of their neighbours
are taken apart at the first slice that is not final, the gangs among them that still contend are
grouped anew, and go on with the virtual time and the waits that they had. All other groups go on as they
are, and those that repeat cost nothing at all.

Gangs that contend need slices only if one of them takes turns (its processes on several cores wait for
each other, or it must not run together with others), or if their weights differ: else the kernel shares their
one core among them as well, and finer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gangd.core.cores import ConflictGraph
from gangd.core.gang_group import (
    UNIT,
    Bools,
    ComposeRules,
    GangGroup,
    Ints,
    SliceBlock,
    by_block,
    compose,
    settle,
    states,
)

FIRST_SLICES = 4  # composed at once for a group that is new
STEP_SLICES = 2  # composed at most at a tick for a large group that goes on, if ticks are a slice apart
AHEAD_SLICES = 16  # composed ahead at most: then the group is published anew
MOST_LEAD, MOST_WAIT = 1 << 40, 1 << 16  # of what is remembered: it may be damaged
COMPOSE_BUDGET = 20_000  # gang-slices at once: a small system finds its repetition at the first attempt
_BY_SLOT = (
    "held_ns", "_gang", "_charge", "_lead", "_debt", "_left", "_wait", "_turn_ns", "_stay", "_woken"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Advance:
    """What is new from a slice on.

    Attributes
    ----------
    publish
        Groups that are new or have new slices.
    watch
        Slots of gangs that begin to be watched, or moved while they are: they run, but want sampling.
    drop
        Names of groups, and ids of gangs that were watched, that are no more.
    """

    publish: list[GangGroup]
    watch: list[int]
    drop: list[int]


class SliceScheduler:
    """The groups, and by slot what they need to know of a gang.

    Attributes
    ----------
    groups
        By slot, the group that the gang is in, None while it does not contend.
    held_ns
        By slot, time for which the gang was held, as far as its group is settled.
    """

    def __init__(self, graph: ConflictGraph, quantum_ns: int) -> None:
        self.graph = graph
        self._quantum_ns = quantum_ns
        self.groups: list[GangGroup | None] = []
        self.held_ns: Ints = np.zeros(0, dtype=np.int64)
        self._gang: Ints = np.zeros(0, dtype=np.int64)
        self._charge: Ints = np.zeros(0, dtype=np.int64)
        self._wants: list[bool] = []
        self._shares: list[bool] = []
        self._turns: list[bool] = []
        self._watched: dict[int, int] = {}
        self._moved: set[int] = set()
        self._used: set[int] = set()
        self._lead: Ints = np.zeros(0, dtype=np.int64)
        self._debt: Ints = np.zeros(0, dtype=np.int64)
        self._left: Ints = np.zeros(0, dtype=np.int64)
        self._wait: Ints = np.zeros(0, dtype=np.int64)
        self._turn_ns: Ints = np.zeros(0, dtype=np.int64)
        self._stay: Ints = np.zeros(0, dtype=np.int64)
        self._woken: Bools = np.zeros(0, dtype=np.bool_)
        self._dirty: set[int] = set()
        self._recalled: set[int] = set()
        self._first = 0
        self._windows: dict[int, GangGroup] = {}
        self._all: dict[int, GangGroup] = {}

    def enter(
        self, slot: int, gang: int, weight: float, quantum_ns: int = 0, *, takes_turns: bool = True
    ) -> None:
        """Give ``slot`` to a gang; a slot that is used again starts without past."""
        if slot >= len(self.groups):
            missing = max(slot + 1, 2 * len(self.groups), 64) - len(self.groups)
            self.groups.extend([None] * missing)
            self._wants.extend([False] * missing)
            self._shares.extend([False] * missing)
            self._turns.extend([True] * missing)
            for name in _BY_SLOT:
                old = getattr(self, name)
                setattr(self, name, np.concatenate((old, np.zeros(missing, dtype=old.dtype))))
        self._gang[slot] = gang
        if slot in self._used:
            self._lead[slot] = self._debt[slot] = self._left[slot] = self.held_ns[slot] = 0
        self._used.add(slot)
        self._recalled.discard(slot)
        self.reweigh(slot, weight, quantum_ns, takes_turns=takes_turns)

    def reweigh(self, slot: int, weight: float, quantum_ns: int = 0, *, takes_turns: bool = True) -> None:
        """Set the weight of a gang, its quantum, and whether its contenders must not run together with it."""
        self._charge[slot] = max(1, round(UNIT / weight))
        self._turn_ns[slot] = quantum_ns
        self._turns[slot] = takes_turns
        self._dirty.add(slot)

    def positions(self, number: int) -> dict[int, tuple[int, int]]:
        """Return by slot, of each gang that contends, its lead before slice ``number`` and its wait."""
        found: dict[int, tuple[int, int]] = {}
        for group in self._all.values():
            row, block, mine = group.state_row(number), group.block, slice(group.begin, group.end)
            times, waits = block.times[row, mine], block.waits[row, mine]
            positions = zip((times - times.min()).tolist(), waits.tolist(), strict=True)
            found.update(zip(group.slots.tolist(), positions, strict=True))
        return found

    def lead_alone(self, slot: int, number: int) -> int:
        """Return the lead before slice ``number`` of a gang that does not contend: it melts away."""
        crowded = max(2, int(self.graph.crowd[slot]))
        return max(0, int(self._lead[slot]) - (number - int(self._left[slot])) * UNIT // crowded)

    def recall(self, slot: int, lead: int, wait: int) -> None:
        """Let a gang that begins stand where it stood under an earlier controller."""
        self._lead[slot] = min(max(lead, 0), MOST_LEAD)
        self._wait[slot] = min(max(wait, 0), MOST_WAIT)
        self._recalled.add(slot)

    def want(self, slot: int, wants: bool, shares: bool, *, woke_for: int | None = None) -> None:
        """Say whether a gang wants its cores, and may be held for others.

        Parameters
        ----------
        slot
            The gang.
        wants
            Whether it does from now on.
        shares
            Whether it shares cores and is ruled by its demand, wanting or not: then it is sampled.
        woke_for
            If it just woke: slices in which it ran together with the owners, for which it is charged half.
        """
        if self._wants[slot] != wants or self._shares[slot] != shares:
            self._wants[slot], self._shares[slot] = wants, shares
            self._dirty.add(slot)
        if woke_for is not None:
            self._woken[slot] = True
            self._debt[slot] = woke_for * int(self._charge[slot]) // 2

    def move(self, slot: int) -> None:
        """Note that the jobs or cores of a gang changed."""
        self._dirty.add(slot)
        self._moved.add(slot)

    @property
    def touched(self) -> bool:
        """Whether something changed since slices were last worked out."""
        return bool(self._dirty)

    @property
    def repeats(self) -> bool:
        """Whether the slices of all groups repeat for ever."""
        return not self._windows

    def touch(self, slots: Iterable[int]) -> None:
        """Neighbours of ``slots`` changed."""
        self._dirty.update(slots)

    def touch_all(self) -> None:
        """Everything is to be worked out again."""
        self._dirty.update(slot for slot, shares in enumerate(self._shares) if shares)
        self._moved.update(self._watched)

    def advance(self, first: int, cap_slices: int, quantum_ns: int) -> Advance:
        """Work out what holds from slice ``first`` on, the first one that is not final.

        Parameters
        ----------
        first
            Never smaller than in an earlier call.
        cap_slices
            ``CoreSettings.cap_slices`` of ``quantum_ns``.
        quantum_ns
            Length of the slices from ``first`` on; after a change, call ``touch_all`` before.
        """
        retired, fresh, region = self._regroup(first)
        self._quantum_ns = quantum_ns
        passed, self._first = max(1, min(first - self._first, AHEAD_SLICES - STEP_SLICES)), first
        windows = [self._revive(group, first) for group in self._windows.values()]
        self._compose(fresh, cap_slices, max(FIRST_SLICES, passed + STEP_SLICES))
        short = [
            group for group in windows if group.period is None and group.end_slice < first + AHEAD_SLICES
        ]
        missing = max((first + AHEAD_SLICES - group.end_slice for group in short), default=0)
        self._compose(short, cap_slices, min(passed + STEP_SLICES - 1, missing))
        last = first + passed + 1
        due = [group for group in windows if group.published_end is None or group.published_end < last]
        publish = [*fresh, *due]
        for group in publish:
            if group.repeats_from(first):
                group.published_end = None
                self._windows.pop(group.name, None)
            else:
                group.published_end = group.end_slice
                self._windows[group.name] = group
        watch, unwatched = self._watch(region)
        names = {group.name for group in fresh}.union(self._watched[slot] for slot in watch)
        ended = dict.fromkeys([*(group.name for group in retired), *unwatched])
        return Advance(publish, watch, [name for name in ended if name not in names])

    def _watch(self, region: set[int]) -> tuple[list[int], list[int]]:
        """Slots that begin to be watched, and ids of gangs that cease to be."""
        begun, ended = [], []
        for slot in sorted(region):
            watched = self._shares[slot] and self.groups[slot] is None
            gang = self._watched.get(slot)
            if gang is not None and not watched:
                ended.append(self._watched.pop(slot))
            elif watched and (gang is None or slot in self._moved):
                self._watched[slot] = int(self._gang[slot])
                begun.append(slot)
        self._moved.clear()
        return begun, ended

    def settle(self, groups: Iterable[GangGroup], end: int) -> None:
        """Account the held slices of groups before ``end``."""
        for together in by_block(groups):
            slots, held = settle(together, end)
            self.held_ns[slots] += held * self._quantum_ns

    def all_groups(self) -> list[GangGroup]:
        """Return the groups in force."""
        return list(self._all.values())

    def _compose(self, groups: list[GangGroup], cap_slices: int, least: int) -> None:
        """Compose slices until repetition is found: ``least`` of them at least, then as many as are cheap."""
        gangs = sum(group.end - group.begin for group in groups)
        left = max(least, min(AHEAD_SLICES, COMPOSE_BUDGET // max(1, gangs)))
        slices = least
        while groups and left > 0:
            graph = self.graph
            turns = np.maximum(1, (self._turn_ns + self._quantum_ns // 2) // self._quantum_ns)
            rules = ComposeRules(graph.neighbours, self._charge, graph.crowd, turns, cap_slices)
            compose(groups, rules, min(slices, left))
            left -= slices
            slices = AHEAD_SLICES
            groups = [group for group in groups if group.period is None]

    def _revive(self, group: GangGroup, first: int) -> GangGroup:
        """Go on with a group; if slices passed that were never composed, from where it stopped."""
        if group.period is not None or group.end_slice >= first:
            return group
        self.settle([group], first)
        fresh = GangGroup(
            group.name, _start(first, *states([group], group.end_slice)), 0, group.end - group.begin
        )
        self._install(fresh)
        return fresh

    def _install(self, group: GangGroup) -> None:
        self._all[group.name] = group
        groups = self.groups
        for slot in group.slots.tolist():
            groups[slot] = group

    def _regroup(self, first: int) -> tuple[list[GangGroup], list[GangGroup], set[int]]:
        """Work out groups where something changed: those that end, those that begin, slots concerned."""
        if not self._dirty:
            return [], [], set()
        neighbours, groups, wants = self.graph.neighbours, self.groups, self._wants
        region = set(self._dirty)
        for slot in self._dirty:
            region.update(neighbours[slot])
        retired = list({id(group): group for group in map(groups.__getitem__, region) if group}.values())
        stayed = self._take_apart(retired, first)
        region |= stayed
        rotating = {slot for slot in region if wants[slot] and any(map(wants.__getitem__, neighbours[slot]))}
        parts = self._parts(rotating)
        rotating = set(parts[0])
        self._admit(rotating - stayed, stayed & rotating, first)
        self._woken[list(self._dirty - rotating)] = False
        self._dirty.clear()
        return retired, self._begin(parts, first), region

    def _take_apart(self, retired: list[GangGroup], first: int) -> set[int]:
        """Dissolve groups; what their gangs had is kept by slot."""
        self.settle(retired, first)
        stayed: set[int] = set()
        for together in by_block(retired):
            slots, times, waits, stay, woken = states(together, first)
            self._lead[slots], self._wait[slots], self._woken[slots] = times, waits, woken
            self._stay[slots] = stay
            self._left[slots] = first
            stayed.update(slots.tolist())
        for group in retired:
            del self._all[group.name]
            self._windows.pop(group.name, None)
        groups = self.groups
        for slot in stayed:
            groups[slot] = None
        return stayed

    def _admit(self, entrants: set[int], others: set[int], first: int) -> None:
        """Place gangs that begin to contend: at their own lead or the last of those that do, if later.

        An own lead from before melts while the gang is away, as fast as the others advance at least.
        """
        if not entrants:
            return
        slots = np.array(sorted(entrants), dtype=np.int64)
        recalled = [slot for slot in entrants if slot in self._recalled]
        self._recalled.difference_update(recalled)
        self._left[recalled] = first  # no time has passed for a gang that was not scheduled
        waits = self._wait[recalled]
        crowded = np.maximum(2, self.graph.crowd[slots])
        melted = self._lead[slots] - (first - self._left[slots]) * UNIT // crowded
        own = np.maximum(0, melted) + self._debt[slots]
        self._debt[slots] = 0
        last = np.zeros_like(own)
        if others:
            neighbours, lead = self.graph.neighbours, self._lead
            for place, slot in enumerate(slots.tolist()):
                last[place] = min((lead[other] for other in neighbours[slot] if other in others), default=0)
        self._wait[slots] = self._stay[slots] = 0
        self._wait[recalled] = waits
        self._woken[slots] &= own - last < crowded * self._charge[slots]
        self._lead[slots] = np.maximum(own, last)

    def _parts(self, rotating: set[int]) -> tuple[list[int], list[int]]:
        """List the gangs that need slices, connected part by part, and the size of each part."""
        neighbours = self.graph.neighbours
        order: list[int] = []
        sizes = []
        left = set(rotating)
        while left:
            part = [left.pop()]
            for slot in part:
                for other in neighbours[slot]:
                    if other in left:
                        left.remove(other)
                        part.append(other)
            if self._needs_slices(part):
                order += part
                sizes.append(len(part))
        return order, sizes

    def _needs_slices(self, part: list[int]) -> bool:
        """Whether gangs that contend have to take turns; those of one core each are all neighbours."""
        if any(map(self._turns.__getitem__, part)):
            return True
        return len(set(self._charge[part].tolist())) > 1

    def _begin(self, parts: tuple[list[int], list[int]], first: int) -> list[GangGroup]:
        """Form groups without slices yet, one of each part, side by side in one block."""
        order, sizes = np.array(parts[0], dtype=np.int64), np.array(parts[1], dtype=np.int64)
        if not len(order):
            return []
        starts = np.cumsum(sizes) - sizes
        part_of = np.repeat(np.arange(len(sizes)), sizes)
        slots = order[np.lexsort((self._gang[order], part_of))]
        times = self._lead[slots]
        times -= np.minimum.reduceat(times, starts)[part_of]
        block = _start(first, slots, times, self._wait[slots], self._stay[slots], self._woken[slots])
        names, begins = self._gang[slots[starts]].tolist(), starts.tolist()
        groups = [
            GangGroup(name, block, begin, begin + size)
            for name, begin, size in zip(names, begins, parts[1], strict=True)
        ]
        for group in groups:
            self._install(group)
        return groups


def _start(first: int, slots: Ints, times: Ints, waits: Ints, stay: Ints, woken: Bools) -> SliceBlock:
    """Block without slices yet, from the state before slice ``first``."""
    run = np.zeros((0, len(slots)), dtype=np.bool_)
    return SliceBlock(first, slots, run, times[None, :], waits[None, :], stay[None, :], woken[None, :])
