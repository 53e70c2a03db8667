"""Whole milliseconds: how the transforms keep sums exact.

Traces carry whole seconds, or decimals down to the millisecond once they were compressed. A
transform counts in milliseconds and writes back seconds, ``int`` where they are whole. Rounding is half
to even, as Python's ``round`` does it.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from workloads.swf import InteractivePattern


def to_ms(seconds: float) -> int:
    """Return ``seconds`` in whole milliseconds, rounded."""
    return round(seconds * 1000)


def to_s(milliseconds: int) -> float:
    """Return ``milliseconds`` in seconds, as an ``int`` where they are whole."""
    whole, rest = divmod(milliseconds, 1000)
    return milliseconds / 1000 if rest else whole


def stretch(pattern: InteractivePattern, total_ms: int) -> InteractivePattern:
    """Return ``pattern`` stretched or compressed in proportion so that it takes exactly ``total_ms``.

    The instants between the periods are rounded, not the periods, so the sum is exact and no error
    adds up. A pattern without any length is idle for ``total_ms`` before its empty busy periods.
    """
    periods = (pattern.prologue_s, *_alternate(pattern), pattern.epilogue_s)
    ends_ms = list(accumulate(map(to_ms, periods)))
    length_ms = ends_ms[-1]
    if length_ms == 0:
        return InteractivePattern(
            to_s(total_ms), 0, (0,) * len(pattern.activations_s), (0,) * len(pattern.idles_s)
        )
    moved = [0, *((2 * end_ms * total_ms + length_ms) // (2 * length_ms) for end_ms in ends_ms)]
    lengths = [to_s(end_ms - start_ms) for start_ms, end_ms in pairwise(moved)]
    return InteractivePattern(lengths[0], lengths[-1], tuple(lengths[1:-1:2]), tuple(lengths[2:-1:2]))


def _alternate(pattern: InteractivePattern) -> tuple[float, ...]:
    return pattern.periods_s[1:-1] if pattern.activations_s else ()
