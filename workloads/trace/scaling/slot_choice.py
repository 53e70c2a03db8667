"""The choice of jobs for one half-hour slot after another, each with a target of cores; and kinds of sizes.

See ``half_hours`` for the idea and its source. Sizes are serial, powers of two, or others. Shrinking keeps
the kind, and shares of kinds can be mended. Why kinds matter: thesis section 7.4.3 keeps the ratios of serial
jobs and of jobs with a power of two of processors when it scales a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

TRIES = 12
MIXTURES = 4
MUCH_OWED = 0.05
"""Of the target system's cores: with more carried along, a slot may miss its own target."""

SERIAL, POWER_OF_TWO, OTHER = 0, 1, 2
_LEAST = (1, 2, 3)

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


def kind_of(size: int) -> int:
    """Return ``SERIAL`` for 1, ``POWER_OF_TWO`` for 2, 4, 8, ..., else ``OTHER``."""
    if size <= 1:
        return SERIAL
    return POWER_OF_TWO if size & (size - 1) == 0 else OTHER


def count_kinds(sizes: Sequence[int] | IntArray) -> IntArray:
    """Return the number of sizes of each of the three kinds."""
    widths = np.asarray(sizes, dtype=np.int64)
    serial = np.count_nonzero(widths <= 1)
    powers = np.count_nonzero((widths > 1) & (widths & (widths - 1) == 0))
    return np.array([serial, powers, len(widths) - serial - powers], dtype=np.int64)


def halved(size: int, times: int, widest: int) -> int:
    """Return ``size`` halved ``times``, and on until at most ``widest``; of the same kind where possible."""
    kind = kind_of(size)
    least = min(_LEAST[kind], widest)
    while times > 0 or size > widest:
        if size <= least:
            return least
        size = max(least, size // 2)
        times -= 1
    return size if kind_of(size) == kind else nearest_of_kind(size, kind, widest) or size


def nearest_of_kind(size: int, kind: int, widest: int) -> int | None:
    """Return the size of ``kind`` nearest to ``size``, the smaller of two; ``None`` if ``widest`` is less."""
    if widest < _LEAST[kind]:
        return None
    if kind == SERIAL:
        return 1
    if kind == OTHER:
        inside = min(size, widest)
        near = (inside, inside - 1, inside + 1, 3)
        return next(found for found in near if 3 <= found <= widest and kind_of(found) == OTHER)
    below = 1 << max(1, min(size, widest).bit_length() - 1)
    above = below * 2
    return above if above <= widest and above - size < size - below else below


def mend_kinds(
    sizes: Sequence[int],
    slots: Sequence[int],
    fits: Callable[[int, int], bool],
    shares: NDArray[np.float64],
    widest: int,
    rng: np.random.Generator,
) -> list[int]:
    """Return ``sizes`` moved to their neighbours so that the kinds have ``shares`` of the jobs.

    Jobs are looked at in random order, once. One of a kind that is too frequent becomes one of a kind
    that is too rare where its size changes by at most a third, or two cores, and the larger size fits in its
    slot.

    Parameters
    ----------
    sizes, slots
        Processors and half-hour slot of each job.
    fits
        Whether a slot may have so many cores in all.
    shares
        Wanted shares of the three kinds.
    widest
        Largest size.
    rng
        Source of the order.
    """
    mended = list(sizes)
    wanted = np.rint(shares * len(mended)).astype(np.int64)
    counts = count_kinds(mended)
    cores: Counter[int] = Counter()
    for slot, size in zip(slots, mended, strict=True):
        cores[slot] += size
    for place in rng.permutation(len(mended)).tolist():
        slot, size = slots[place], mended[place]
        kind = kind_of(size)
        if counts[kind] <= wanted[kind]:
            continue
        for other in np.argsort(counts - wanted).tolist():
            near = nearest_of_kind(size, other, widest) if counts[other] < wanted[other] else None
            if (
                near is None
                or abs(near - size) > max(2, size // 3)
                or not fits(slot, cores[slot] + near - size)
            ):
                continue
            mended[place] = near
            cores[slot] += near - size
            counts[kind] -= 1
            counts[other] += 1
            break
    return mended
