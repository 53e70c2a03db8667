"""The choice of jobs for one half-hour slot after another, each with a target number of cores.

See ``scale.py`` for the idea and its source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from workloads.trace.scaling.size_kinds import count_kinds, halved, kind_of, nearest_of_kind

TRIES = 12
MIXTURES = 4
MUCH_OWED = 0.05
"""Of the target system's cores: with more carried along, a slot may miss its own target."""

IntArray = NDArray[np.int64]


def slack_cores(target: float, tolerance: float) -> float:
    """Return how far a slot may be from its target: the tolerance, or one core where that is less."""
    return max(tolerance * target, 1.0)


@dataclass(slots=True)
class SlotChooser:
    """Chooses jobs at random, slot by slot, and carries what a slot could not place to the next.

    Parameters
    ----------
    shares
        Wanted shares of serial, power-of-two and other sizes.
    widest
        Cores of the target system.
    tolerance
        Of a slot's target; one core is always allowed.
    rng
        Source of all choices.
    """

    shares: NDArray[np.float64]
    widest: int
    tolerance: float
    rng: np.random.Generator
    carried: float = 0.0
    counts: IntArray = field(default_factory=lambda: np.zeros(3, dtype=np.int64))

    def choose(self, sizes: IntArray, target: float) -> tuple[IntArray, IntArray]:
        """Return places in ``sizes`` and the chosen jobs' new sizes, for a slot of ``target`` cores.

        At every halving of the sizes, and at some mixtures of halvings, ``TRIES`` random selections are
        made. The first wish is to be within the tolerance of the target, or of what is owed in all where
        earlier slots owe a good deal; the second to bring the kinds' shares and the cores of all slots nearer
        to what they should be.
        """
        owed = target + self.carried
        slack = slack_cores(target, self.tolerance)
        near = min(max(owed, target - slack), target + slack)
        if abs(self.carried) > max(slack, MUCH_OWED * self.widest):
            target = near = owed
        best: IntArray = np.zeros(0, dtype=np.int64)
        best_widths = best
        best_badness = self._badness(best_widths, target, owed, slack)
        levels = self._levels(sizes)
        for widths in (*levels, *self._mixtures(levels)):
            for _ in range(TRIES):
                members = self._draw(widths, near - max(0.5, slack / 2), target + slack)
                badness = self._badness(widths[members], target, owed, slack)
                if badness < best_badness:
                    best, best_widths, best_badness = members, widths[members], badness
        if best_badness[0] > 0:
            best_widths = self._trimmed(sizes[best], best_widths, target)
        self.counts += count_kinds(best_widths)
        # a trace whose jobs are all chosen must not make the following slots swell without end
        self.carried = float(np.clip(owed - int(best_widths.sum()), -self.widest, self.widest))
        return best, best_widths

    def _trimmed(self, sizes: IntArray, widths: IntArray, target: float) -> IntArray:
        """Return ``widths`` with the widest job at a size between two halvings, if that is nearer.

        A slot of one or two wide jobs may have no halving within the tolerance. The job keeps its kind and
        is not wider than it was.
        """
        if not len(widths):
            return widths
        place = int(widths.argmax())
        width = int(widths[place])
        wanted = max(1, round(width + target - int(widths.sum())))
        found = nearest_of_kind(wanted, kind_of(width), min(self.widest, int(sizes[place])))
        if found is None or abs(found - wanted) >= abs(width - wanted):
            return widths
        trimmed = widths.copy()
        trimmed[place] = found
        return trimmed

    def _badness(self, widths: IntArray, target: float, owed: float, slack: float) -> tuple[float, float]:
        """Return the cores outside of the tolerance, then the jobs astray in kind and number."""
        cores = int(widths.sum())
        counts = self.counts + count_kinds(widths)
        kinds = float(np.abs(counts - self.shares * counts.sum()).sum())
        outside = max(0.0, abs(cores - target) - slack)
        return outside, kinds + abs(cores - owed) * max(1, len(widths)) / max(1, cores)

    def _levels(self, sizes: IntArray) -> list[IntArray]:
        levels: list[IntArray] = []
        known, places = np.unique(sizes, return_inverse=True)
        for times in range(int(sizes.max()).bit_length() + 1):
            widths = np.array([halved(size, times, self.widest) for size in known.tolist()], dtype=np.int64)[
                places
            ]
            # the first halvings may all lead to the same sizes, where jobs are wider than the target system
            if not levels or not np.array_equal(widths, levels[-1]):
                levels.append(widths)
        return levels

    def _mixtures(self, levels: list[IntArray]) -> Iterator[IntArray]:
        """Yield sizes with every job at a halving of its own, for slots of few jobs."""
        stack = np.stack(levels)
        columns = np.arange(stack.shape[1])
        for _ in range(MIXTURES if len(levels) > 1 else 0):
            yield stack[self.rng.integers(len(levels), size=stack.shape[1]), columns]

    def _draw(self, widths: IntArray, enough: float, limit: float) -> IntArray:
        """Return a random selection that stops at ``enough`` cores, without jobs that exceed ``limit``."""
        chosen: list[int] = []
        total = 0
        for place in self.rng.permutation(len(widths)).tolist():
            if total >= enough:
                break
            if total + widths[place] <= limit:
                chosen.append(place)
                total += int(widths[place])
        return np.array(sorted(chosen), dtype=np.int64)
