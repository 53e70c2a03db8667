"""How long a gang stood still, by what its nodes report and never more than was planned.

The rule. The ranks of a parallel job wait for each other, so one that stands still stops them all: in each
slice a gang has lost the most that any of its nodes lost there, once, however many nodes tell of it. A slice
that no node tells of has lost nothing: it was planned to be held, but its agent was away, only tried
(``--dry-run``), or spared it. And the sum is never above the time for which the gang was planned to be held:
whatever a node claims, it can give its jobs no more than what the schedule took from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

WINDOW_NS = 10_000_000_000
_KEPT = 128
"""Slices for which what was told is remembered: agents keep half as many while they cannot report."""


@dataclass(slots=True)
class LostTime:
    """The account of one gang.

    Attributes
    ----------
    told_ns
        Sum over the slices of the most that any node told.
    planned_ns
        For how long it was planned to be held.
    taken_ns
        What was taken from here already.
    since_ns
        When the account was opened.
    """

    since_ns: int = 0
    told_ns: int = 0
    planned_ns: int = 0
    taken_ns: int = 0
    _slices: dict[int, int] = field(default_factory=dict)
    _oldest: int = 0
    _window: tuple[int, int] = (0, 0)
    _before: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self._window = self._before = (self.since_ns, 0)

    def tell(self, number: int, lost_ns: int, length_ns: int, *, again: bool) -> None:
        """Take in what one node lost in a slice.

        Parameters
        ----------
        number
            The slice; one that is too old to be remembered counts for nothing.
        lost_ns
            For how long a job of the gang stood still there; what is above ``length_ns`` is cut off.
        length_ns
            Length of the slice.
        again
            Whether other nodes may tell of the same slice.
        """
        lost_ns = min(lost_ns, length_ns)
        if not again:
            self.told_ns += lost_ns
            return
        if number < self._oldest:
            return
        known_ns = self._slices.get(number, 0)
        if lost_ns > known_ns:
            self._slices[number] = lost_ns
            self.told_ns += lost_ns - known_ns
        if len(self._slices) > 2 * _KEPT:
            self._oldest = max(self._slices) - _KEPT
            self._slices = {one: ns for one, ns in self._slices.items() if one >= self._oldest}

    def plan(self, held_ns: int) -> None:
        """Add time for which the gang was planned to be held."""
        self.planned_ns += held_ns

    def take(self, now_ns: int) -> int:
        """Return what was lost since this was asked last, in ns."""
        lost_ns = min(self.told_ns, self.planned_ns) - self.taken_ns
        self.taken_ns += lost_ns
        if now_ns >= self._window[0] + WINDOW_NS:
            self._before, self._window = self._window, (now_ns, self.taken_ns)
        return lost_ns

    def share(self, now_ns: int) -> float:
        """Share of its time of late that the gang lost: of the last 10 to 20 seconds."""
        since_ns, taken_ns = self._before
        return min(1.0, (self.taken_ns - taken_ns) / max(1, now_ns - since_ns))
