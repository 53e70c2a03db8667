"""The argument format of idle and busy periods: ``N t0 t1 t2 ...``, idle first.

Source: thesis table 7.3, with decimals, since a compressed trace has periods below a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from foundation.errors import UsageError

FORM = "expected N t0 t1 t2 ...: the number of periods, then each one's seconds, idle first"


@dataclass(frozen=True, slots=True)
class Periods:
    """Alternating periods in seconds, the first one idle."""

    seconds: tuple[float, ...]

    @property
    def idle_s(self) -> float:
        """Idle seconds asked for, in wall time."""
        return math.fsum(self.seconds[0::2])

    @property
    def busy_s(self) -> float:
        """Busy seconds asked for, in each worker's own CPU time."""
        return math.fsum(self.seconds[1::2])

    def is_busy(self, index: int) -> bool:
        """Say whether period ``index`` (from 0) is a busy one."""
        return index % 2 == 1


def parse_periods(words: Sequence[str]) -> Periods:
    """Read the arguments of the application.

    Raises
    ------
    UsageError
        The count is missing, below 1 or not that of the durations, or a duration is not a finite
        number of seconds, 0 or more.
    """
    if not words:
        raise UsageError(f"no periods given; {FORM}")
    if not words[0].isascii() or not words[0].isdigit() or int(words[0]) < 1:
        raise UsageError(f"the number of periods is {words[0]!r}, not a whole number of at least 1; {FORM}")
    if int(words[0]) != len(words) - 1:
        raise UsageError(f"{words[0]} periods announced, {len(words) - 1} given; {FORM}")
    return Periods(tuple(_duration(place, word) for place, word in enumerate(words[1:])))


def _duration(place: int, word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"period t{place} is {word!r}; a period is a number of seconds, 0 or more")
    return seconds
