"""When slices are and how long: their numbers and instants, and a pace for switches that are late.

Slice numbers and instants: slices follow each other without gap; a new quantum begins at a slice.

Longer slices and more foresight while switches are late: pure, from what agents report.

A host that has neighbours may take twice as long for everything in one hour and not in the next. Then two
things go wrong. Switches take more of each slice, and as a gang waits for its latest node, all of its nodes
lose it: slices get longer. And plans reach their nodes after they should count: more slices are final.

* *Lost* is the time from a slice's instant to the last write of its switch: the mean for each node since the
  last look, and of these what nine of ten nodes do not exceed: one broken node does not slow all others.
* More than ``MOST_LOST`` of a slice in two looks in a row: slices are doubled, up to ``quantum_most_ns`` and
  not so far that the turns of the most crowded core would exceed the freeze cap.
* Slices of half the length would lose less than ``LITTLE_LOST`` in six looks in a row: they are halved, down
  to what the administrator asked for. ``LITTLE_LOST`` is less than ``MOST_LOST``: nothing swings.
* Slices are final so far ahead that a plan has ``LEADS`` round trips, and as many times what is lost, to
  reach its node; never fewer than the administrator asked for. They grow at once and shrink slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from gangd.core.gang_settings import GREATEST_QUANTUM_NS, MS, SECOND, CoreSettings


class Era(NamedTuple):
    """A run of slices of one length: from ``first_slice``, which starts at ``start_ns``, on."""

    first_slice: int
    start_ns: int
    quantum_ns: int


class Timebase:
    """Where slices lie on the controller's clock."""

    def __init__(self, start_ns: int, quantum_ns: int) -> None:
        self._eras = [Era(0, start_ns, quantum_ns)]

    @property
    def quantum_ns(self) -> int:
        """Length of the slices of the newest era."""
        return self._eras[-1].quantum_ns

    def era(self, number: int) -> Era:
        """Era of slice ``number``; the oldest one known for slices before it."""
        for era in reversed(self._eras):
            if era.first_slice <= number:
                return era
        return self._eras[0]

    def slice_at(self, now_ns: int) -> int:
        """Return the number of the slice that holds the instant; negative before slice 0."""
        for era in reversed(self._eras):  # nearly always the newest: it is asked for in each report
            if era.start_ns <= now_ns:
                break
        return era.first_slice + (now_ns - era.start_ns) // era.quantum_ns

    def start_ns(self, number: int) -> int:
        """Start of slice ``number``."""
        era = self.era(number)
        return era.start_ns + (number - era.first_slice) * era.quantum_ns

    def length_ns(self, number: int) -> int:
        """Length of slice ``number``."""
        return self.era(number).quantum_ns

    def change(self, first_slice: int, quantum_ns: int) -> None:
        """Begin a new era with slices of ``quantum_ns`` at ``first_slice``."""
        start_ns = self.start_ns(first_slice)
        kept = [era for era in self._eras if era.first_slice < first_slice]
        self._eras = [*kept[-3:], Era(first_slice, start_ns, quantum_ns)]


LOOK_NS = 5 * SECOND
MOST_LOST, LITTLE_LOST = 0.03, 0.02
BAD_LOOKS, GOOD_LOOKS = 2, 6
LEADS = 4
MORE_LOOKAHEAD = 6
_ENOUGH = 8
_STALE_NS = 2 * LOOK_NS


@dataclass(slots=True)
class _Node:
    """What a node reported since it was judged: slices, what they lost in all and its round trip (us)."""

    heard_ns: int
    slices: int = 0
    lost_us: int = 0
    rtt_us: int = 0


class QuantumPace:
    """The length of slices and how many are final, between what is asked for and what is allowed.

    Attributes
    ----------
    quantum_ns, lookahead
        As they should be from the next tick on.
    lost_us
        Time lost to a switch at the last look; None while no gang takes turns.
    """

    def __init__(self, settings: CoreSettings, now_ns: int) -> None:
        self._settings = settings
        self._nodes: dict[int, _Node] = {}
        self._doublings = self._bad = self._good = self._eased = 0
        self._next_ns = now_ns + LOOK_NS
        self.lost_us: float | None = None
        self.quantum_ns = settings.quantum_ns
        self.lookahead = settings.lookahead

    @property
    def is_changed(self) -> bool:
        """Whether either is not what the administrator asked for."""
        return self.quantum_ns != self._settings.quantum_ns or self.lookahead != self._settings.lookahead

    @property
    def lost_share(self) -> float | None:
        """Share of a slice that is lost to switching; None while no gang takes turns."""
        return None if self.lost_us is None else 1000 * self.lost_us / self.quantum_ns

    def ask(self, settings: CoreSettings) -> None:
        """Begin anew from what the administrator asks for now."""
        self._settings = settings
        self._doublings = self._bad = self._good = self._eased = 0
        self.quantum_ns, self.lookahead = settings.quantum_ns, settings.lookahead

    def note(self, node: int, lost_us: Sequence[int], rtt_us: int, now_ns: int) -> None:
        """Take in what a node lost in some slices, and its round trip to the controller."""
        if not lost_us:
            return
        known = self._nodes.get(node)
        if known is None:
            known = self._nodes[node] = _Node(now_ns)
        known.heard_ns, known.rtt_us = now_ns, rtt_us
        known.slices += len(lost_us)
        known.lost_us += sum(lost_us)

    def look(self, now_ns: int, crowd: int) -> bool:
        """Judge now and then; returns whether slices or lookahead have changed.

        Parameters
        ----------
        now_ns
            The time.
        crowd
            Gangs on the most crowded core.
        """
        if now_ns < self._next_ns or not self._settings.adapt:
            return False
        self._next_ns = now_ns + LOOK_NS
        self._nodes = {node: one for node, one in self._nodes.items() if now_ns < one.heard_ns + _STALE_NS}
        ready = [one for one in self._nodes.values() if one.slices >= _ENOUGH]
        if self._nodes and not ready:
            return False
        self.lost_us = _most([one.lost_us / one.slices for one in ready]) if ready else None
        rtt_us = _most([one.rtt_us for one in ready]) if ready else 0.0
        for one in ready:
            one.slices = one.lost_us = 0
        before = self.quantum_ns, self.lookahead
        lost_ns = 1000 * (self.lost_us or 0.0)
        self._stretch(lost_ns, crowd)
        self._foresee(lost_ns + 1000 * rtt_us)
        return before != (self.quantum_ns, self.lookahead)

    def _stretch(self, lost_ns: float, crowd: int) -> None:
        asked_ns = self._settings.quantum_ns
        most_ns = min(
            self._settings.quantum_most_ns, GREATEST_QUANTUM_NS, self._settings.freeze_cap_ns // max(1, crowd)
        )
        self._bad = self._bad + 1 if lost_ns > MOST_LOST * self.quantum_ns else 0
        eased = self._doublings > 0 and 2 * lost_ns < LITTLE_LOST * self.quantum_ns
        self._good = self._good + 1 if eased else 0
        if self._bad >= BAD_LOOKS and self.quantum_ns < most_ns:
            self._doublings, self._bad = self._doublings + 1, 0
        elif self._good >= GOOD_LOOKS:
            self._doublings, self._good = self._doublings - 1, 0
        while self._doublings and asked_ns << (self._doublings - 1) >= most_ns:
            self._doublings -= 1  # a core became more crowded
        self.quantum_ns = max(asked_ns, min(asked_ns << self._doublings, most_ns))

    def _foresee(self, lead_ns: float) -> None:
        asked = self._settings.lookahead
        wanted = 1 + ceil(LEADS * lead_ns / self.quantum_ns)
        wanted = min(max(asked, wanted), asked + MORE_LOOKAHEAD)
        self._eased = self._eased + 1 if wanted < self.lookahead else 0
        if wanted > self.lookahead or self._eased >= GOOD_LOOKS:
            self.lookahead, self._eased = max(wanted, self.lookahead - 1), 0

    def __str__(self) -> str:
        slices = f"slices of {self.quantum_ns / MS:g} ms, {self.lookahead} of them final"
        return f"{slices} (asked for: {self._settings.quantum_ns / MS:g} ms, {self._settings.lookahead})"


def _most(values: Sequence[float]) -> float:
    """Return what nine of ten values do not exceed."""
    return sorted(values)[-(-9 * len(values) // 10) - 1]
