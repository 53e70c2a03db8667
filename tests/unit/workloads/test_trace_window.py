from __future__ import annotations

from datetime import date

import pytest

from foundation.errors import UsageError
from workloads.swf import SwfComment, SwfHeader, SwfJob, SwfTrace
from workloads.trace.local_clock import DAY_S
from workloads.trace.transforms.busy_window import THESIS_WINDOW, cut_window, find_window

MONDAY_S = 1400457600
"""2014-05-19 00:00 in Greenwich."""


def header(*lines: str) -> SwfHeader:
    return SwfHeader(tuple(SwfComment(f"; {line}\n".encode()) for line in lines))


def trace(submits: list[tuple[float, int]], head: SwfHeader | None = None) -> SwfTrace:
    jobs = tuple(
        SwfJob(number, submit_s, run_s=60, allocated_procs=4, queue=queue)
        for number, (submit_s, queue) in enumerate(sorted(submits), start=1)
    )
    return SwfTrace(head or header(f"UnixStartTime: {MONDAY_S}"), jobs)


def working_day(
    day: int, jobs: int, first_hour: float = 9, hours: float = 8, queue: int = 0
) -> list[tuple[float, int]]:
    step_s = hours * 3600 / jobs
    return [(day * DAY_S + first_hour * 3600 + place * step_s, queue) for place in range(jobs)]


def two_weeks() -> list[tuple[float, int]]:
    """Working days of 10 interactive jobs, three of 40, a busier Saturday, and batch jobs all along."""
    days: list[tuple[float, int]] = [(hour * 3600, 1) for hour in range(14 * 24)]
    for day in range(14):
        if day % 7 < 5:
            days += working_day(day, 40 if day in (7, 8, 9) else 10)
    return days + working_day(5, 200)


def test_window_is_around_the_active_hours_of_a_busy_weekday() -> None:
    window = find_window(trace(two_weeks()))
    assert window.active_start_s >= 7 * DAY_S + 9 * 3600
    assert window.active_end_s <= 7 * DAY_S + 17 * 3600
    assert window.active_end_s - window.active_start_s >= 0.8 * 8 * 3600 - 1800
    assert window.active_start_s - window.start_s == 3 * 3600
    assert window.end_s - window.active_end_s == 5.5 * 3600
    assert window.why.startswith("2014-05-26: 40 interactive submissions")


def test_busy_day_with_a_strange_course_is_passed_over() -> None:
    strange = [*two_weeks(), *working_day(10, 60, first_hour=1, hours=0.5)]
    assert find_window(trace(strange)).why.startswith(("2014-05-26", "2014-05-27"))


def test_window_of_a_given_day_is_around_its_own_active_hours() -> None:
    window = find_window(trace(two_weeks()), day=date(2014, 5, 24))
    assert window.why == "2014-05-24: 200 interactive submissions"
    assert window.active_start_s >= 5 * DAY_S + 9 * 3600
    assert window.active_end_s <= 5 * DAY_S + 17 * 3600
    with pytest.raises(UsageError, match="no interactive submissions on 2014-07-01"):
        find_window(trace(two_weeks()), day=date(2014, 7, 1))
    with pytest.raises(UsageError, match="no dates"):
        find_window(trace(two_weeks(), header()), day=date(2014, 5, 24))


def test_all_submissions_count_where_none_is_interactive() -> None:
    jobs = [(submit_s, 1) for submit_s, _ in two_weeks()]
    assert "64 submissions" in find_window(trace(jobs)).why


def test_trace_with_all_jobs_in_the_interactive_queue_names_none() -> None:
    jobs = [(submit_s, 0) for submit_s, _ in two_weeks()]
    assert " submissions" in find_window(trace(jobs)).why
    assert "interactive" not in find_window(trace(jobs)).why


def test_days_without_dates_count_from_the_start_and_saturdays_are_not_known() -> None:
    saturday = [(submit_s, queue) for submit_s, queue in two_weeks() if 5 <= submit_s // DAY_S < 6]
    monday = [(submit_s + 2 * DAY_S, queue) for submit_s, queue in working_day(5, 3)]
    jobs = [*saturday, *monday, (0, 1), (9 * DAY_S, 1)]
    assert find_window(trace(jobs, header())).why.startswith("day 5: 200 interactive")
    assert find_window(trace(jobs)).why.startswith("2014-05-26: 3 interactive")


def test_trace_of_less_than_a_day_is_one_window() -> None:
    window = find_window(trace([(100, 0), (4000, 1)]))
    assert (window.start_s, window.end_s) == (100, 4001)


def test_cut_window_starts_at_zero_and_keeps_dates_right() -> None:
    whole = trace(two_weeks())
    cut = cut_window(whole, 9 * DAY_S, DAY_S)
    assert cut.jobs[0].submit_s == 0
    assert len(cut.jobs) == 64
    assert cut.header.unix_start_time_s == MONDAY_S + 9 * DAY_S
    assert cut.header.notes[-1].startswith("osub window: 64 of ")
    assert cut.header.max_jobs == 64


def test_links_to_jobs_outside_of_the_window_are_dropped() -> None:
    jobs = (
        SwfJob(1, 0),
        SwfJob(2, 100, preceding_job=1, think_s=5),
        SwfJob(3, 110, preceding_job=2, think_s=6),
    )
    cut = cut_window(SwfTrace(SwfHeader(), jobs), 50, 100)
    assert [(job.preceding_job, job.think_s) for job in cut.jobs] == [(None, None), (2, 6)]


def test_unsorted_submissions_are_sorted_in_the_window() -> None:
    cut = cut_window(SwfTrace(SwfHeader(), (SwfJob(1, 90), SwfJob(2, 60))), 50, 100)
    assert [(job.job_number, job.submit_s) for job in cut.jobs] == [(2, 10), (1, 40)]


def test_empty_window_is_a_usage_error_that_says_where_jobs_are() -> None:
    with pytest.raises(UsageError, match="choose within 60 and 90"):
        cut_window(SwfTrace(SwfHeader(), (SwfJob(1, 90), SwfJob(2, 60))), 500, 100)


@pytest.mark.parametrize(
    ("start_s", "length_s"), [(float("nan"), 5), (0, float("inf")), (0, float("nan")), (0, 0), (0, -1)]
)
def test_windows_that_are_no_stretch_of_time_are_usage_errors(start_s: float, length_s: float) -> None:
    with pytest.raises(UsageError, match="not possible"):
        cut_window(SwfTrace(SwfHeader(), (SwfJob(1, 90),)), start_s, length_s)


def test_trace_without_jobs_has_no_window() -> None:
    with pytest.raises(UsageError, match="has no job"):
        find_window(SwfTrace(SwfHeader(), ()))


def test_phases_out_of_range_are_a_usage_error() -> None:
    for arguments in ({"active_share": 0.0}, {"warm_up_s": -1.0}, {"cool_down_s": -1.0}):
        with pytest.raises(UsageError):
            find_window(trace(two_weeks()), **arguments)  # type: ignore[arg-type]


def test_thesis_window_has_the_phases_of_its_day() -> None:
    assert THESIS_WINDOW.length_s == 16.5 * 3600
    assert THESIS_WINDOW.active_end_s - THESIS_WINDOW.active_start_s == 8 * 3600
