"""Conversions between the units that travel: seconds, milliseconds, microseconds, MiB, KiB.

Simulated time is an integer count of microseconds; the one rounding is here: half to even,
as Python's ``round`` does it.
"""

from __future__ import annotations

import re

from foundation.errors import UsageError

US_PER_S = 1_000_000
KIB_PER_MIB = 1024
LEAST_SPEEDUP, MOST_SPEEDUP = 1e-3, 1e6
"""Beyond them no second of a trace is one that a run can have."""
_TIME = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smh]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_WEEK_S = 7 * 86_400
_LONG = (("days", 86_400.0), ("h", 3600.0), ("min", 60.0))
_FROM = 3
"""A duration of at least so many of a unit is printed in that unit."""
_WHOLE_FROM = 10
"""A rough number from here on has no decimals."""


def seconds_to_us(seconds: float) -> int:
    """Return ``seconds`` as a whole number of microseconds, rounded half to even."""
    return round(seconds * US_PER_S)


def kib_to_mib(kib: float) -> int:
    """Return ``kib`` KiB in whole MiB, rounded up: a memory request is never made smaller."""
    return -(-int(kib) // KIB_PER_MIB)


def seconds_to_minutes_up(seconds: float) -> int:
    """Return ``seconds`` in whole minutes, rounded up and at least 1: Slurm's limits are in minutes."""
    return max(1, -(-round(seconds * 1000) // 60_000))


def checked_speedup(speedup: float) -> float:
    """Return what the times of a trace are divided by; raises UsageError if it is no factor for that."""
    if not LEAST_SPEEDUP <= speedup <= MOST_SPEEDUP:
        raise UsageError(
            f"--speedup divides times by {LEAST_SPEEDUP:g} to {MOST_SPEEDUP:,.0f}, not by {speedup:g}"
        )
    return speedup


def counted(number: int, thing: str) -> str:
    """Return a number with what it counts: 1 job, 1,200 jobs."""
    return f"{number:,} {several(number, thing)}"


def counted_of(part: int, whole: int, thing: str) -> str:
    """Return how many of how many: 1 of 1 job, 1 of 1,200 jobs."""
    return f"{part:,} of {counted(whole, thing)}"


def several(number: int, thing: str) -> str:
    """Return what a number counts, without the number: job of 1, jobs of any other."""
    if number == 1:
        return thing
    return f"{thing}{'es' if thing.endswith(('s', 'ch', 'x')) else 's'}"


def verb(number: int, one: str = "is", more: str = "are") -> str:
    """Return the verb that goes with a number: is for 1, are for any other."""
    return one if number == 1 else more


def seconds_of(text: str) -> float:
    """Return the seconds of a time to spend: ``90s``, ``30m``, ``2h``, or ``90``.

    Raises
    ------
    UsageError
        It is none of these, nothing, or more than a week.
    """
    match = _TIME.fullmatch(text.strip().lower())
    seconds = 0.0 if match is None else float(match[1]) * _SECONDS[match[2]]
    if not 0 < seconds <= _WEEK_S:
        raise UsageError(f"--budget: {text!r} is no time to spend; write 90s, 30m or 2h, up to a week")
    return seconds


def number(value: float) -> str:
    """Return a number with about four digits that matter."""
    size = abs(round(value, 3))
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 1 or size == 0 else f"{value:.3f}"


def durations(*seconds: float, rough: bool = False) -> list[str]:
    """Return the durations of one sentence, or of one column of a table, all in the unit of the longest.

    Days from 3 days on, hours from 3 hours, minutes from 3 minutes, else seconds; ``rough`` ones, such as
    estimates, without the digits that do not matter.
    """
    longest = max(map(abs, seconds))
    unit, length = next(((unit, one) for unit, one in _LONG if longest >= _FROM * one), ("s", 1.0))
    return [f"{_roughly(value / length) if rough else number(value / length)} {unit}" for value in seconds]


def duration(seconds: float, *, rough: bool = False) -> str:
    """Return the only duration of a sentence; see ``durations``."""
    return durations(seconds, rough=rough)[0]


def _roughly(value: float) -> str:
    return f"{value:.1f}" if abs(value) < _WHOLE_FROM else f"{value:,.0f}"
