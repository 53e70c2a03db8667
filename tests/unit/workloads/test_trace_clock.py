from __future__ import annotations

from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from workloads.swf import SwfComment, SwfHeader
from workloads.trace.local_clock import DAY_S, TraceClock

GAIA_START_S = 1400749079
"""2014-05-22 10:57:59 in Luxembourg, a Thursday."""


def header(*lines: str) -> SwfHeader:
    return SwfHeader(tuple(SwfComment(f"; {line}\n".encode()) for line in lines))


def test_submissions_get_local_days_hours_and_weekdays() -> None:
    clock = TraceClock(GAIA_START_S, ZoneInfo("Europe/Luxembourg"))
    local = clock.local(np.array([0.0, 13 * 3600 + 120 + 1]))
    assert local.second_of_day.tolist() == [10 * 3600 + 57 * 60 + 59, 0]
    assert (local.day - local.day[0]).tolist() == [0, 1]
    assert local.weekday is not None
    assert local.weekday.tolist() == [3, 4]
    date = clock.date(0)
    assert date is not None
    assert date.isoformat() == "2014-05-22T10:57:59+02:00"


def test_summer_time_is_followed_within_a_trace() -> None:
    midnight_before_the_change = 1414281600  # 2014-10-26 00:00 UTC; clocks go back at 01:00
    clock = TraceClock(midnight_before_the_change, ZoneInfo("Europe/Luxembourg"))
    local = clock.local(np.array([0.0, 3599.0, 3600.0]))
    assert local.second_of_day.tolist() == [7200, 10799, 7200]


@pytest.mark.parametrize("offset_days", [0, 40, 157, 158, 300])
def test_trace_seconds_and_local_times_are_inverse(offset_days: int) -> None:
    clock = TraceClock(GAIA_START_S, ZoneInfo("Europe/Luxembourg"))
    trace_s = offset_days * DAY_S + 12345
    local = clock.local(np.array([float(trace_s)]))
    assert clock.trace_s(int(local.day[0]), int(local.second_of_day[0])) == trace_s


def test_header_without_a_date_counts_days_from_the_start() -> None:
    for head in (header(), header("UnixStartTime: 0")):
        clock = TraceClock.of(head, 500.0)
        assert clock.date(500) is None
        local = clock.local(np.array([DAY_S + 5.0]))
        assert (local.day[0], local.second_of_day[0], local.weekday) == (1, 5, None)
        assert clock.trace_s(1, 5) == DAY_S + 5


def test_submit_times_that_are_unix_times_are_dates() -> None:
    clock = TraceClock.of(header("UnixStartTime: 0"), 1641021254)
    date = clock.date(1641021254)
    assert date is not None
    assert date.year == 2022


def test_zone_falls_back_to_the_offset_then_to_greenwich() -> None:
    start = f"UnixStartTime: {GAIA_START_S}"
    named = header(start, "TimeZoneString: Nowhere/Land", "TimeZone: 3600")
    assert TraceClock.of(named, 0).zone == timezone(timedelta(hours=1))
    assert TraceClock.of(header(start), 0).zone == UTC
