"""Job sizes by kind: serial, power of two, other. Shrinking keeps the kind; shares of kinds can be mended.

Why kinds matter: thesis section 7.4.3 keeps the ratios of serial jobs and of jobs with a power of two of
processors when it scales a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

SERIAL, POWER_OF_TWO, OTHER = 0, 1, 2
_LEAST = (1, 2, 3)

IntArray = NDArray[np.int64]


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
    room: Callable[[int, int], bool],
    shares: NDArray[np.float64],
    widest: int,
    rng: np.random.Generator,
) -> list[int]:
    """Return ``sizes`` moved to their neighbours so that the kinds have ``shares`` of the jobs.

    Jobs are looked at in random order, once. One of a kind that is too frequent becomes one of a kind
    that is too rare where its size changes by at most a third, or two cores, and its slot has room.

    Parameters
    ----------
    sizes, slots
        Processors and half-hour slot of each job.
    room
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
                or not room(slot, cores[slot] + near - size)
            ):
                continue
            mended[place] = near
            cores[slot] += near - size
            counts[kind] -= 1
            counts[other] += 1
            break
    return mended
