"""Traces transformed: window, filters, compression, scale, clock, summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from foundation.errors import UsageError
from workloads.swf import InteractivePattern, SwfComment, SwfHeader, SwfJob, SwfTrace, load_columns
from workloads.trace.local_clock import DAY_S, TraceClock, stretch
from workloads.trace.models.interactive_jobs import make_interactive
from workloads.trace.scaling.half_hours import scale_trace
from workloads.trace.scaling.slot_choice import (
    OTHER,
    POWER_OF_TWO,
    SERIAL,
    SlotChooser,
    halved,
    kind_of,
    nearest_of_kind,
)
from workloads.trace.trace_summary import TraceSummary, summarize
from workloads.trace.transforms import busy_window
from workloads.trace.transforms.filters import (
    Align,
    DrawBy,
    Selection,
    TagField,
    merge_traces,
    select_jobs,
    tag_jobs,
)

MONDAY_S = 1400457600  # 2014-05-19 00:00 in Greenwich


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
    window = busy_window.find_window(trace(two_weeks()))
    assert window.active_start_s >= 7 * DAY_S + 9 * 3600
    assert window.active_end_s <= 7 * DAY_S + 17 * 3600
    assert window.active_end_s - window.active_start_s >= 0.8 * 8 * 3600 - 1800
    assert window.active_start_s - window.start_s == 3 * 3600
    assert window.end_s - window.active_end_s == 5.5 * 3600
    assert window.why.startswith("2014-05-26: 40 interactive submissions")


def test_busy_day_with_a_strange_course_is_passed_over() -> None:
    strange = [*two_weeks(), *working_day(10, 60, first_hour=1, hours=0.5)]
    assert busy_window.find_window(trace(strange)).why.startswith(("2014-05-26", "2014-05-27"))


def test_window_of_a_given_day_is_around_its_own_active_hours() -> None:
    window = busy_window.find_window(trace(two_weeks()), day=date(2014, 5, 24))
    assert window.why == "2014-05-24: 200 interactive submissions"
    assert window.active_start_s >= 5 * DAY_S + 9 * 3600
    assert window.active_end_s <= 5 * DAY_S + 17 * 3600
    with pytest.raises(UsageError, match="no interactive submissions on 2014-07-01"):
        busy_window.find_window(trace(two_weeks()), day=date(2014, 7, 1))
    with pytest.raises(UsageError, match="no dates"):
        busy_window.find_window(trace(two_weeks(), header()), day=date(2014, 5, 24))


@pytest.mark.parametrize(("queue", "said"), [(1, "64 submissions"), (0, " submissions")])
def test_all_submissions_count_where_none_or_each_is_interactive(queue: int, said: str) -> None:
    why = busy_window.find_window(trace([(submit_s, queue) for submit_s, _ in two_weeks()])).why
    assert said in why
    assert "interactive" not in why


def test_days_without_dates_count_from_the_start_and_saturdays_are_not_known() -> None:
    saturday = [(submit_s, queue) for submit_s, queue in two_weeks() if 5 <= submit_s // DAY_S < 6]
    monday = [(submit_s + 2 * DAY_S, queue) for submit_s, queue in working_day(5, 3)]
    jobs = [*saturday, *monday, (0, 1), (9 * DAY_S, 1)]
    assert busy_window.find_window(trace(jobs, header())).why.startswith("day 5: 200 interactive")
    assert busy_window.find_window(trace(jobs)).why.startswith("2014-05-26: 3 interactive")


def test_trace_of_less_than_a_day_is_one_window() -> None:
    window = busy_window.find_window(trace([(100, 0), (4000, 1)]))
    assert (window.start_s, window.end_s) == (100, 4001)


def test_cut_window_starts_at_zero_and_keeps_dates_right() -> None:
    cut = busy_window.cut_window(trace(two_weeks()), 9 * DAY_S, DAY_S)
    assert (cut.jobs[0].submit_s, len(cut.jobs)) == (0, 64)
    assert cut.header.unix_start_time_s == MONDAY_S + 9 * DAY_S
    assert cut.header.notes[-1].startswith("osub window: 64 of ")
    assert cut.header.fields["MaxJobs"] == ("64",)


def test_links_to_jobs_outside_of_the_window_are_dropped() -> None:
    jobs = (
        SwfJob(1, 0),
        SwfJob(2, 100, preceding_job=1, think_s=5),
        SwfJob(3, 110, preceding_job=2, think_s=6),
    )
    cut = busy_window.cut_window(SwfTrace(SwfHeader(), jobs), 50, 100)
    assert [(job.preceding_job, job.think_s) for job in cut.jobs] == [(None, None), (2, 6)]


def test_unsorted_submissions_are_sorted_in_the_window() -> None:
    cut = busy_window.cut_window(SwfTrace(SwfHeader(), (SwfJob(1, 90), SwfJob(2, 60))), 50, 100)
    assert [(job.job_number, job.submit_s) for job in cut.jobs] == [(2, 10), (1, 40)]


def test_thesis_window_has_the_phases_of_its_day() -> None:
    assert busy_window.THESIS_WINDOW.length_s == 16.5 * 3600
    assert busy_window.THESIS_WINDOW.active_end_s - busy_window.THESIS_WINDOW.active_start_s == 8 * 3600


def filtered_trace(count: int = 100, name: str = "lab", start_s: int | None = None) -> SwfTrace:
    jobs = tuple(
        SwfJob(
            number, 60 * number, run_s=number * 100, allocated_procs=number % 20 + 1, status=1,
            user=number % 7, queue=1 + number % 2, preceding_job=number - 1 if number > 1 else None,
            think_s=5 if number > 1 else None,
        )
        for number in range(1, count + 1)
    )  # fmt: skip
    header = SwfHeader() if start_s is None else SwfHeader().with_field("UnixStartTime", start_s)
    return SwfTrace(header, jobs, name)


def test_filters_keep_what_they_name_and_say_so() -> None:
    kept = select_jobs(
        filtered_trace(), Selection(users=frozenset({2, 3}), not_queues=frozenset({1}), most_procs=10)
    )
    assert kept.jobs
    assert all(
        job.user in (2, 3) and job.queue == 2 and job.procs is not None and job.procs <= 10
        for job in kept.jobs
    )
    assert kept.header.notes[-1] == (
        f"osub select: {len(kept.jobs)} of 100 jobs, users 2 3, not queues 1, processors ..10"
    )


def test_links_to_jobs_that_are_filtered_out_are_dropped() -> None:
    kept = select_jobs(filtered_trace(), Selection(queues=frozenset({2})))
    assert all(job.preceding_job is None and job.think_s is None for job in kept.jobs)


def test_unknown_fields_fit_no_wanted_number_and_no_unwanted_one() -> None:
    bare = SwfTrace(SwfHeader(), (SwfJob(1, 0), SwfJob(2, 0, user=1)))
    assert [job.job_number for job in select_jobs(bare, Selection(users=frozenset({1}))).jobs] == [2]
    assert [job.job_number for job in select_jobs(bare, Selection(not_users=frozenset({1}))).jobs] == [1]


def test_filter_that_asks_for_nothing_changes_nothing() -> None:
    assert select_jobs(filtered_trace(), Selection()) is not None
    assert select_jobs(filtered_trace(), Selection()).jobs == filtered_trace().jobs


@pytest.mark.parametrize(("factor", "count"), [(0.25, 25), (1, 100), (1.3, 130), (3.5, 350)])
def test_arrival_scaling_keeps_the_time_and_changes_the_number(factor: float, count: int) -> None:
    scaled = busy_window.scale_arrivals(filtered_trace(), factor, seed=3)
    assert len(scaled.jobs) == count
    assert len({job.job_number for job in scaled.jobs}) == count
    submits = [job.submit_s for job in scaled.jobs]
    assert submits == sorted(submits)
    assert submits[-1] < 6000 + 1800
    assert scaled == busy_window.scale_arrivals(filtered_trace(), factor, seed=3)


def test_larger_tag_shares_contain_smaller_ones() -> None:
    few = tag_jobs(filtered_trace(), TagField.QUEUE, 9, 0.2, seed=5)
    many = tag_jobs(filtered_trace(), TagField.QUEUE, 9, 0.6, seed=5)
    small = {job.job_number for job in few.jobs if job.queue == 9}
    large = {job.job_number for job in many.jobs if job.queue == 9}
    assert (len(small), len(large)) == (20, 60)
    assert small < large


def test_tagging_by_user_takes_all_jobs_of_the_drawn_users_among_the_chosen() -> None:
    narrow = Selection(most_procs=4)
    tagged = tag_jobs(
        filtered_trace(), TagField.PARTITION, 3, 0.5, among=narrow, by=DrawBy.USER, name="ondemand"
    )
    users = {job.user for job in tagged.jobs if job.partition == 3}
    assert 1 <= len(users) <= 4
    for job in tagged.jobs:
        assert (job.partition == 3) == (job.user in users and (job.procs or 0) <= 4)
    assert tagged.header.partitions == {3: "ondemand"}


@pytest.mark.parametrize("field", list(TagField))
def test_every_field_can_carry_the_tag(field: TagField) -> None:
    assert all(getattr(job, field.value) == 8 for job in tag_jobs(filtered_trace(), field, 8).jobs)


def test_merged_jobs_are_in_order_under_unique_numbers_with_their_links() -> None:
    merged = merge_traces([filtered_trace(10), filtered_trace(10, "other")])
    assert len({job.job_number for job in merged.jobs}) == 20
    submits = [job.submit_s for job in merged.jobs]
    assert submits == sorted(submits)
    moved = [job for job in merged.jobs if job.job_number > 10]
    assert all(job.preceding_job is None or job.preceding_job > 10 for job in moved)
    assert "lab (10 jobs), other (10 jobs), aligned by start" in merged.header.notes[-1]


def test_merging_by_dates_moves_jobs_to_their_instants() -> None:
    merged = merge_traces(
        [filtered_trace(3, start_s=10_000_000), filtered_trace(3, start_s=9_990_000)], Align.DATES
    )
    assert merged.header.unix_start_time_s == 9_990_000
    assert [job.submit_s for job in merged.jobs] == [60, 120, 180, 10_060, 10_120, 10_180]


def test_users_of_merged_traces_can_be_kept_apart() -> None:
    assert len({job.user for job in merge_traces([filtered_trace(), filtered_trace()]).jobs}) == 7
    assert (
        len({job.user for job in merge_traces([filtered_trace(), filtered_trace()], same_users=False).jobs})
        == 13
    )


def test_small_short_batch_jobs_become_interactive_until_there_are_enough() -> None:
    some = make_interactive(filtered_trace(), 20, seed=2, queue=0, most_cores=12, most_run_s=5000)
    chosen = [job for job in some.jobs if job.queue == 0]
    assert len(chosen) == 20
    assert all((job.procs or 0) <= 12 and (job.run_s or 0) < 5000 for job in chosen)
    more = make_interactive(filtered_trace(), 25, seed=2, queue=0, most_cores=12, most_run_s=5000)
    assert {job.job_number for job in chosen} < {job.job_number for job in more.jobs if job.queue == 0}
    assert make_interactive(some, 10) is some


def test_trace_with_one_queue_gets_a_batch_queue_for_the_rest() -> None:
    alike = SwfTrace(SwfHeader(), tuple(SwfJob(n, n, run_s=5, allocated_procs=1, queue=0) for n in range(10)))
    changed = make_interactive(alike, 4)
    assert sorted(job.queue or 0 for job in changed.jobs) == [0] * 4 + [1] * 6


JOB = SwfJob(
    1, submit_s=600, wait_s=60, run_s=50, cpu_s=30, requested_s=120, think_s=6, used_memory_kib=100,
    extension=InteractivePattern(5, 5, (5, 20), (15,)).to_extension(),
)  # fmt: skip


def compressed_trace(*jobs: SwfJob) -> SwfTrace:
    return SwfTrace(SwfHeader(), jobs)


def test_every_time_is_divided_and_nothing_else() -> None:
    (job,) = busy_window.compress(compressed_trace(JOB), 10).jobs
    assert (job.submit_s, job.wait_s, job.run_s, job.cpu_s, job.requested_s, job.think_s) == (
        60, 6, 5, 3, 12, 0.6,
    )  # fmt: skip
    assert job.used_memory_kib == 100
    assert job.pattern == InteractivePattern(0.5, 0.5, (0.5, 2), (1.5,))


def test_times_are_rounded_to_the_millisecond() -> None:
    (job,) = busy_window.compress(compressed_trace(JOB), 7).jobs
    assert (job.submit_s, job.run_s) == (85.714, 7.143)


def test_arrivals_and_jobs_can_have_factors_of_their_own() -> None:
    result = busy_window.compress_apart(compressed_trace(JOB), 100, 10)
    assert (result.jobs[0].submit_s, result.jobs[0].wait_s, result.jobs[0].run_s) == (6, 0.6, 5)
    assert result.header.notes == ("osub compress: speed-up 100 between jobs, 10 within",)


def test_clipping_reports_how_many() -> None:
    jobs = (
        JOB,
        SwfJob(2, 0, run_s=1, requested_s=1),
        SwfJob(3, 0, run_s=999, requested_s=2000),
        SwfJob(4, 0),
    )
    clipped, report = busy_window.clip_run_times(compressed_trace(*jobs), 10, 100)
    assert [job.run_s for job in clipped.jobs] == [50, 10, 100, None]
    assert [job.requested_s for job in clipped.jobs] == [120, 10, 200.2, None]
    assert (report.raised, report.cut, report.jobs) == (1, 1, 4)
    assert clipped.header.notes == ("osub clip: run times to 10 to 100 s, 1 raised, 1 cut",)


def test_clipped_job_keeps_its_busy_and_idle_shares() -> None:
    clipped, _ = busy_window.clip_run_times(compressed_trace(JOB), 100, 100)
    assert clipped.jobs[0].pattern == InteractivePattern(10, 10, (10, 40), (30,))
    assert clipped.jobs[0].cpu_s == 60


NAN, INF = float("nan"), float("inf")
LATE = SwfTrace(SwfHeader(), (SwfJob(1, 90), SwfJob(2, 60)))


@pytest.mark.parametrize(
    ("message", "function", "arguments", "words"),
    [
        ("choose within 60 and 90", busy_window.cut_window, (LATE, 500, 100), {}),
        *(("not possible", busy_window.cut_window, (LATE, start_s, length_s), {})
          for start_s, length_s in ((NAN, 5), (0, INF), (0, NAN), (0, 0), (0, -1))),
        ("has no job", busy_window.find_window, (SwfTrace(SwfHeader(), ()),), {}),
        *((".", busy_window.find_window, (trace(two_weeks()),), {name: value})
          for name, value in (("active_share", 0.0), ("warm_up_s", -1.0), ("cool_down_s", -1.0))),
        *(("factor", busy_window.scale_arrivals, (filtered_trace(), factor), {})
          for factor in (0, -1, NAN, INF, 0.001)),
        *(("--speedup", busy_window.compress, (LATE, speedup), {}) for speedup in (0, -1, INF, NAN)),
        ("shortest <= longest", busy_window.clip_run_times, (LATE, 10, 5), {}),
        ("no job of lab is left with users 99", select_jobs,
         (filtered_trace(), Selection(users=frozenset({99}))), {}),
        ("may be tagged", tag_jobs, (filtered_trace(), TagField.QUEUE, 9),
         {"among": Selection(users=frozenset({99}))}),
        ("share", tag_jobs, (filtered_trace(), TagField.QUEUE, 9), {"share": 2}),
        ("UnixStartTime", merge_traces, ([filtered_trace(), filtered_trace()], Align.DATES), {}),
        ("at least one", merge_traces, ([],), {}),
        ("100 interactive jobs cannot be reached", make_interactive, (filtered_trace(), 100), {}),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_usage_error(
    message: str, function: Callable[..., object], arguments: tuple[Any, ...], words: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=message):
        function(*arguments, **words)


def test_stretching_rounds_the_instants_not_the_periods() -> None:
    thirds = InteractivePattern(1, 1, (1,), ())
    assert stretch(thirds, 1000) == InteractivePattern(0.333, 0.333, (0.334,), ())
    assert stretch(InteractivePattern(0, 0, (), ()), 1000) == InteractivePattern(1, 0, (), ())


def day(seed: int = 1, jobs: int = 1000) -> SwfTrace:
    """A day on 1,024 processors: a third serial, a third powers of two, a third others."""
    rng = np.random.default_rng(seed)
    made = []
    for number, submit_s in enumerate(sorted(rng.integers(0, 86_400, jobs).tolist()), start=1):
        size = (1, 2 ** int(rng.integers(1, 8)), 3 * int(rng.integers(1, 40)))[number % 3]
        queue = 0 if number % 10 == 0 else 1
        made.append(
            SwfJob(number, submit_s, run_s=60, allocated_procs=size, requested_procs=size, queue=queue)
        )
    return SwfTrace(SwfHeader().with_field("MaxProcs", 1024), tuple(made))


@pytest.mark.slow
def test_slots_and_kinds_keep_their_shares() -> None:
    scaled, report = scale_trace(day(), 12, 12)
    assert report.slots_within >= 0.95 * len(report.slot_targets)
    assert report.cores == pytest.approx(report.target_cores, rel=0.02)
    assert report.serial_after == pytest.approx(report.serial_before, abs=0.03)
    assert report.power_of_two_after == pytest.approx(report.power_of_two_before, abs=0.03)
    assert report.arrival_distance < 0.1
    assert scaled.header.notes[-1].startswith(
        "osub scale: 1024 to 144 processors (12 nodes of 12), intensity 1, seed 1"
    )


@pytest.mark.parametrize(("size", "target"), [(200, 16.0), (61, 4.9), (128, 11.0), (200, 144.0), (7, 5.0)])
def test_single_wide_job_is_narrowed_until_its_slot_is_on_target(size: int, target: float) -> None:
    chooser = SlotChooser(np.array([0.2, 0.3, 0.5]), 144, 0.1, np.random.default_rng(1))
    places, widths = chooser.choose(np.array([size]), target)
    assert places.tolist() == [0]
    assert kind_of(int(widths[0])) == kind_of(size)
    nearest = nearest_of_kind(round(target), kind_of(size), min(size, 144))
    assert abs(widths[0] - target) <= max(1, 0.1 * target) or widths[0] == nearest


@pytest.mark.slow
def test_other_seeds_choose_other_jobs() -> None:
    assert scale_trace(day(), 12, 12, seed=1)[0].jobs != scale_trace(day(), 12, 12, seed=2)[0].jobs


@pytest.mark.slow
def test_interactive_jobs_are_kept_and_narrowed_to_a_node() -> None:
    scaled, report = scale_trace(day(), 12, 12)
    interactive = [job for job in scaled.jobs if job.queue == 0]
    assert len(interactive) == report.interactive_jobs == 100
    assert max(job.procs or 0 for job in interactive) <= 12
    half, _ = scale_trace(day(), 12, 12, interactive_share=0.5)
    assert sum(job.queue == 0 for job in half.jobs) == 50


@pytest.mark.slow
def test_interactive_jobs_are_scaled_like_others_where_asked() -> None:
    _, report = scale_trace(day(), 12, 12, interactive_queue=None)
    assert (report.jobs_before, report.interactive_jobs) == (1000, 0)


def test_tiny_targets_are_reached_over_several_slots() -> None:
    _, report = scale_trace(day(), 2, 1, interactive_queue=None)
    assert report.cores == pytest.approx(report.target_cores, abs=3)


def test_larger_system_gets_copies_at_other_instants() -> None:
    scaled, report = scale_trace(day(jobs=100), 64, 64, interactive_queue=None)
    assert report.cores == pytest.approx(4 * sum(job.procs or 0 for job in day(jobs=100).jobs), rel=0.1)
    assert len({job.job_number for job in scaled.jobs}) == len(scaled.jobs) > 200
    assert len({job.submit_s for job in scaled.jobs}) > 200


def test_jobs_without_size_are_left_out_and_counted() -> None:
    trace = day(jobs=50)
    bare = replace(trace.jobs[0], allocated_procs=None, requested_procs=None)
    _, report = scale_trace(replace(trace, jobs=(bare, *trace.jobs[1:])), 12, 12)
    assert report.jobs_without_size == 1


def test_system_size_must_be_known() -> None:
    trace = replace(day(jobs=10), header=SwfHeader())
    with pytest.raises(UsageError, match="does not tell its system's size"):
        scale_trace(trace, 2, 1)
    assert scale_trace(trace, 12, 12, from_procs=1024)[0].header.max_procs == 144


@pytest.mark.parametrize(
    "arguments", [{"to_nodes": 0}, {"intensity": 0.0}, {"interactive_share": 1.5}, {"from_procs": 0}]
)
def test_arguments_out_of_range_are_a_usage_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        scale_trace(day(jobs=10), **{"to_nodes": 2, "to_cores_per_node": 1, **arguments})


def test_halving_keeps_the_kind_where_the_system_is_wide_enough() -> None:
    assert [halved(12, times, 144) for times in range(4)] == [12, 6, 3, 3]
    assert [halved(20, times, 144) for times in range(4)] == [20, 10, 5, 3]
    assert [halved(16, times, 144) for times in range(6)] == [16, 8, 4, 2, 2, 2]
    assert (halved(12, 0, 2), halved(16, 0, 2), halved(16, 0, 1), halved(1, 3, 1)) == (2, 2, 1, 1)
    assert halved(1024, 0, 144) == 128


def test_nearest_size_of_a_kind() -> None:
    assert nearest_of_kind(12, POWER_OF_TWO, 144) == 8
    assert nearest_of_kind(13, POWER_OF_TWO, 144) == 16
    assert nearest_of_kind(13, POWER_OF_TWO, 15) == 8
    assert nearest_of_kind(4, OTHER, 144) == 3
    assert nearest_of_kind(1, OTHER, 144) == 3
    assert nearest_of_kind(1, OTHER, 2) is None
    assert nearest_of_kind(7, SERIAL, 2) == 1


GAIA_START_S = 1400749079  # 2014-05-22 10:57:59 in Luxembourg, a Thursday


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
    date = TraceClock.of(header("UnixStartTime: 0"), 1641021254).date(1641021254)
    assert date is not None
    assert date.year == 2022


def test_zone_falls_back_to_the_offset_then_to_greenwich() -> None:
    start = f"UnixStartTime: {GAIA_START_S}"
    named = header(start, "TimeZoneString: Nowhere/Land", "TimeZone: 3600")
    assert TraceClock.of(named, 0).zone == timezone(timedelta(hours=1))
    assert TraceClock.of(header(start), 0).zone == UTC


TRACE = b"""\
; Version: 2.2
; Installation: Lab
; MaxProcs: 8
; MaxRecords: 9
; UnixStartTime: 1400749079
; TimeZoneString: Europe/Luxembourg
; Queue: 0 interactive
 1    0 -1  10  1 -1 -1 -1  20 -1 1 1 1 -1 0 -1 -1 -1 -1 -1 -1 5 5 1 0
 2  100  5   0  4 -1 -1 -1  -1 -1 0 1 1 -1 1 -1 -1 -1
 3   50  5  30 -1 -1 -1  3  20 10 1 2 1 -1 1 -1 -1 -1
 3  200 -1  -1 16 -1 -1 -1  20 -1 5 2 1 -1 -1 -1 -1 -1
 4  broken
"""


@pytest.fixture
def summary(tmp_path: Path) -> TraceSummary:
    (path := tmp_path / "lab.swf").write_bytes(TRACE)
    return summarize(load_columns(path, strict=False))


def test_figures_are_those_of_the_jobs(summary: TraceSummary) -> None:
    assert (summary.name, summary.installation, summary.max_procs) == ("lab", "Lab", 8)
    assert (summary.jobs, summary.users, summary.span_s) == (4, 2, 200.0)
    assert summary.first_submit == "2014-05-22 10:57:59+02:00"
    assert summary.size_counts == {"1": 1, "3-4": 2, "9-16": 1}
    assert (summary.serial_share, summary.power_of_two_share) == (0.25, 0.5)
    assert (summary.requested_time_share, summary.requested_memory_share, summary.cpu_time_share) == (
        0.75,
        0.25,
        0,
    )
    assert summary.interactive_patterns == 1
    assert summary.run_s is not None
    assert (summary.run_s.known, summary.run_s.percentiles[100]) == (3, 30)
    assert summary.status_counts == {"failed": 1, "completed": 2, "cancelled": 1}
    assert summary.offered_load == pytest.approx((10 + 0 + 90) / (8 * 200))
    assert (sum(summary.arrivals_by_hour), summary.arrivals_by_hour[10]) == (4, 3)


def test_queues_have_their_jobs_and_descriptions(summary: TraceSummary) -> None:
    assert [(queue.queue, queue.description, queue.jobs, queue.processor_s) for queue in summary.queues] == [
        (None, "", 1, 0),
        (0, "interactive", 1, 10),
        (1, "", 2, 90),
    ]


def test_remarks_name_what_to_clean(summary: TraceSummary) -> None:
    remarks = "\n".join(summary.remarks)
    for expected in (
        "run time is 0: 1 job",
        "run time is not known: 1 job",
        "larger than the machine (8 processors): 1 job",
        "ran longer than asked for: 1 job",
        "submitted earlier than the job before: 1 job",
        "has the number of an earlier job: 1 job",
        "skipped, not a number: 1",
        "field 2 (submit time): 'broken' is not a number",
        "the header announces 9 records, the file has 4",
    ):
        assert expected in remarks


def test_trace_that_knows_nothing_but_submissions_has_a_summary(tmp_path: Path) -> None:
    (path := tmp_path / "bare.swf").write_bytes(b"1 0" + b" -1" * 16)
    summary = summarize(load_columns(path))
    assert (summary.size, summary.run_s, summary.wait_s) == (None, None, None)
    assert (summary.serial_share, summary.offered_load, summary.users) == (None, None, None)
    assert summary.first_submit is None
    assert summary.remarks == ("run time is not known: 1 job", "number of processors is not known: 1 job")


def test_a_remark_counts_jobs_that_name_a_preceding_one(tmp_path: Path) -> None:
    path = tmp_path / "linked.swf"
    rest = "-1 10 1 -1 -1 1 20 -1 1 1 1 -1 1 -1"
    path.write_text(f"1 0 {rest} 1 5\n2 1 {rest} 1 5\n3 2 {rest} 9 5\n4 3 {rest} 2 -1\n")
    assert summarize(load_columns(path)).remarks == (
        "submitted after the end of a preceding job (fields 17 and 18): 2 jobs",
        "to be submitted after a preceding job that is not in the trace: 1 job",
        "to be submitted after a preceding job that is not on an earlier line: 1 job",
    )
