"""What Slurm's backfill scheduler foresees: when limits run out, and which nodes are kept for whom.

Running jobs hold their cores until their limits end. A job that cannot start now is kept nodes, whole, from
when it can start until its limit would end. Sets of nodes are numbers, a bit a node. Sources:
``_attempt_backfill`` and ``_add_reservation`` of ``sched/backfill``, ``_will_run_test`` of
``select/cons_common``, Slurm 22.05.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from foundation.units import US_PER_S
from simulator.model.jobs import SimulatedJob

_FIRST_WINDOW_US = 30 * US_PER_S


class PlannedNode:
    """The cores of a node, as they will be; ``multiplicity`` jobs share each."""

    def __init__(self, cores: int, multiplicity: int) -> None:
        self._slots = [multiplicity] * cores
        self._held: list[tuple[int, int]] = []
        self._steps: list[int] | None = None

    def hold(self, cores: Iterable[int], ends_us: int) -> None:
        """Let a job hold cores."""
        self._held = sorted([*self._held, *((ends_us, core) for core in cores)])
        self._steps = None

    def free_cores(self, at_us: int) -> int:
        """Return how many cores have a free slot at an instant, once all that ends then has ended."""
        if self._steps is None:
            self._steps = self._room_after_each_end()
        return self._steps[bisect_right(self._held, (at_us, len(self._slots)))]

    def _room_after_each_end(self) -> list[int]:
        left = list(self._slots)
        for _, core in self._held:
            left[core] -= 1
        gains = []
        for _, core in self._held:
            left[core] += 1
            gains.append(int(left[core] == 1))
        return list(accumulate(gains, initial=len(left) - sum(gains)))


class BackfillPlan:
    """What one pass of the backfill scheduler foresees.

    Parameters
    ----------
    now_us
        When the pass is.
    nodes
        The nodes that take jobs, by number.
    resolution_us
        To what the times are rounded down for which nodes are kept.
    """

    def __init__(self, now_us: int, nodes: dict[int, PlannedNode], resolution_us: int) -> None:
        self._now_us = now_us
        self._nodes = nodes
        self._resolution_us = max(1, resolution_us)
        self._ends: dict[int, int] = {}
        self._fits: dict[tuple[int, int], int] = {}
        # From each instant to the next these nodes are kept for no job.
        self._instants = [min(0, now_us)]
        self._free = [_bits(nodes)]

    def hold(self, node: int, cores: Iterable[int], ends_us: int) -> None:
        """Let a running job hold cores until its limit ends, which is never thought to be past."""
        if node not in self._nodes:
            return
        ends_us = max(ends_us, self._now_us + US_PER_S)
        self._nodes[node].hold(cores, ends_us)
        self._ends[ends_us] = self._ends.get(ends_us, 0) | 1 << node
        self._fits.clear()

    def keep(self, nodes: Iterable[int], start_us: int, limit_us: int) -> None:
        """Keep nodes, whole, for a job."""
        step = self._resolution_us
        since = start_us // step * step
        until = max((start_us + limit_us) // step * step, since + step)
        first, last = self._cut(since), self._cut(until)
        kept = _bits(nodes)
        for place in range(first, last):
            self._free[place] &= ~kept

    def usable(self, start_us: int, limit_us: int) -> list[int]:
        """Return the nodes that are kept for no job in that time."""
        return _numbers(self._usable(start_us, limit_us))

    def later(self, job: SimulatedJob, limit_us: int) -> tuple[int, list[int]] | None:
        """Return when and where a job that cannot start now can, or None if that is not foreseen."""
        tries = [self._now_us, *self._releases()]
        for place, from_us in enumerate(tries):
            usable = self._usable(from_us, limit_us)
            fit_us = self._first_fit_us(job, usable)
            if fit_us is None:
                continue
            start_us = max(fit_us, from_us)
            if place + 1 < len(tries) and tries[place + 1] < start_us:
                continue  # more nodes are free by then
            chosen = self._roomiest(job, usable, start_us)
            if not _bits(chosen) & ~self._usable(start_us, limit_us):
                return start_us, chosen
        return None

    def _cut(self, at_us: int) -> int:
        """Return the place of an instant, from which on other nodes can be kept."""
        place = bisect_left(self._instants, at_us)
        if place == len(self._instants) or self._instants[place] != at_us:
            self._instants.insert(place, at_us)
            self._free.insert(place, self._free[place - 1])
        return place

    def _releases(self) -> Iterator[int]:
        """Yield the instants to come at which a node is no longer kept."""
        for place in range(max(1, bisect_right(self._instants, self._now_us)), len(self._instants)):
            if self._free[place] & ~self._free[place - 1]:
                yield self._instants[place]

    def _usable(self, start_us: int, limit_us: int) -> int:
        first = bisect_right(self._instants, start_us) - 1
        last = bisect_right(self._instants, start_us + limit_us)
        free = self._free[first]
        for place in range(first + 1, last):
            free &= self._free[place]
        return free

    def _first_fit_us(self, job: SimulatedJob, usable: int) -> int | None:
        """Return the first instant that Slurm tries at which enough of the nodes are free."""
        if usable.bit_count() < job.nodes:
            return None
        if (self._fit(job.cores, self._now_us) & usable).bit_count() >= job.nodes:
            return self._now_us + US_PER_S
        for at_us in windows(sorted(ends_us for ends_us, nodes in self._ends.items() if nodes & usable)):
            if (self._fit(job.cores, at_us) & usable).bit_count() >= job.nodes:
                return at_us
        return None

    def _fit(self, cores: int, at_us: int) -> int:
        """Return the nodes that have so many free cores then."""
        if (cores, at_us) not in self._fits:
            fit = (number for number, node in self._nodes.items() if node.free_cores(at_us) >= cores)
            self._fits[cores, at_us] = _bits(fit)
        return self._fits[cores, at_us]

    def _roomiest(self, job: SimulatedJob, usable: int, at_us: int) -> list[int]:
        """Return the nodes that a job would get then: those with the most free resources."""
        fit = _numbers(self._fit(job.cores, at_us) & usable)
        return sorted(fit, key=lambda node: -self._nodes[node].free_cores(at_us))[: job.nodes]


def _bits(nodes: Iterable[int]) -> int:
    return sum(1 << node for node in nodes)


def _numbers(nodes: int) -> list[int]:
    return [node for node in range(nodes.bit_length()) if nodes >> node & 1]


def windows(ends_us: Sequence[int]) -> Iterator[int]:
    """Yield the last end of each window: jobs that end close in time are taken to end together.

    The first window goes to 30 s beyond the first whole half minute after the first end, the next twice as
    far beyond it, and so on; empty ones are left out.
    """
    if not ends_us:
        return
    barrier = (ends_us[0] // _FIRST_WINDOW_US + 1) * _FIRST_WINDOW_US
    window = _FIRST_WINDOW_US
    last = ends_us[0]
    for at_us in ends_us:
        if at_us > barrier + window:
            yield last
        while at_us > barrier + window:
            window *= 2
        last = at_us
    yield last
