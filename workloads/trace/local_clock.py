"""Times of a trace: days, hours and weekdays at the machine's place; whole milliseconds keep sums exact.

Traces carry whole seconds, or decimals down to the millisecond once they were compressed. A
transform counts in milliseconds and writes back seconds, ``int`` where they are whole. Rounding is half
to even, as Python's ``round`` does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from foundation.errors import UsageError
from workloads.swf import InteractivePattern, SwfHeader


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
    periods = pattern.periods_s if pattern.activations_s else (pattern.prologue_s, pattern.epilogue_s)
    ends_ms = list(accumulate(map(to_ms, periods)))
    length_ms = ends_ms[-1]
    if length_ms == 0:
        return InteractivePattern(
            to_s(total_ms), 0, (0,) * len(pattern.activations_s), (0,) * len(pattern.idles_s)
        )
    moved = [0, *((2 * end_ms * total_ms + length_ms) // (2 * length_ms) for end_ms in ends_ms)]
    return InteractivePattern.of_periods([to_s(end_ms - start_ms) for start_ms, end_ms in pairwise(moved)])


DAY_S = 86_400
HOUR_S = 3_600
_EARLIEST = datetime(1980, 1, 1, tzinfo=UTC).timestamp()
_LATEST = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
_THURSDAY = 3  # 1970-01-01; Monday is 0


@dataclass(frozen=True, slots=True)
class LocalTimes:
    """Instants as days and seconds within the day, one entry a job.

    Parameters
    ----------
    day
        Days since 1970-01-01, local time; since the trace's second 0 where the trace has no dates.
    second_of_day
        0 to 86399.
    dated
        Whether the days are dates, so that weekdays are known.
    """

    day: NDArray[np.int64]
    second_of_day: NDArray[np.int64]
    dated: bool

    @property
    def weekday(self) -> NDArray[np.int64] | None:
        """Monday 0 to Sunday 6, or ``None`` where the trace has no dates."""
        return (self.day + _THURSDAY) % 7 if self.dated else None


@dataclass(frozen=True, slots=True)
class TraceClock:
    """The dates of a trace.

    Parameters
    ----------
    epoch_s
        Unix time of second 0, or ``None`` for a trace without dates.
    zone
        The machine's time zone; Greenwich where the header names none that this host knows.
    """

    epoch_s: int | None
    zone: tzinfo = UTC

    @classmethod
    def of(cls, header: SwfHeader, first_submit_s: float) -> TraceClock:
        """Read the clock from ``header``; a start that would date the first job before 1980 is no date."""
        start_s = header.unix_start_time_s
        if start_s is None or not _EARLIEST <= start_s + first_submit_s <= _LATEST:
            return cls(None)
        zone: tzinfo | None = header.time_zone
        if zone is None and header.time_zone_offset_s is not None:
            zone = timezone(timedelta(seconds=max(-DAY_S + 1, min(DAY_S - 1, header.time_zone_offset_s))))
        return cls(start_s, zone or UTC)

    def date(self, trace_s: float) -> datetime | None:
        """Return the local date of the trace's second ``trace_s``, or ``None`` without dates."""
        if self.epoch_s is None or not _EARLIEST <= self.epoch_s + trace_s <= _LATEST:
            return None
        return datetime.fromtimestamp(self.epoch_s + trace_s, self.zone)

    def local(self, trace_s: NDArray[np.float64]) -> LocalTimes:
        """Return day and second of day for each of ``trace_s`` (seconds of the trace)."""
        seconds = np.floor(trace_s).astype(np.int64)
        if self.epoch_s is None:
            return LocalTimes(seconds // DAY_S, seconds % DAY_S, dated=False)
        seconds += self.epoch_s
        hours, place = np.unique(seconds // HOUR_S, return_inverse=True)
        seconds += np.array([self._offset_s(int(hour) * HOUR_S) for hour in hours], dtype=np.int64)[place]
        return LocalTimes(seconds // DAY_S, seconds % DAY_S, dated=True)

    def trace_s(self, day: int, second_of_day: int) -> int:
        """Return the trace's second at a local day and second of day; the inverse of ``local``."""
        local_s = day * DAY_S + second_of_day
        if self.epoch_s is None:
            return local_s
        guess_s = local_s - self._offset_s(local_s)
        return local_s - self._offset_s(guess_s) - self.epoch_s

    def _offset_s(self, unix_s: int) -> int:
        inside = min(max(unix_s, int(_EARLIEST)), int(_LATEST))
        offset = datetime.fromtimestamp(inside, self.zone).utcoffset()
        return 0 if offset is None else int(offset.total_seconds())


def day_number(clock: TraceClock, day: date, name: str) -> int:
    """Return a date as days since 1970-01-01; ``UsageError`` where the trace ``name`` has no dates."""
    if clock.epoch_s is None:
        raise UsageError(f"trace {name} has no dates, so no {day.isoformat()}: give --start instead")
    return (day - date(1970, 1, 1)).days
