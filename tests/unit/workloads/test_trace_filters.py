from __future__ import annotations

import pytest

from foundation.errors import UsageError
from workloads.swf import SwfHeader, SwfJob, SwfTrace
from workloads.trace.models.interactive_jobs import make_interactive
from workloads.trace.transforms.busy_window import scale_arrivals
from workloads.trace.transforms.filters import (
    Align,
    DrawBy,
    Selection,
    TagField,
    merge_traces,
    select_jobs,
    tag_jobs,
)


def trace(count: int = 100, name: str = "lab", start_s: int | None = None) -> SwfTrace:
    jobs = tuple(
        SwfJob(
            number,
            60 * number,
            run_s=number * 100,
            allocated_procs=number % 20 + 1,
            status=1,
            user=number % 7,
            queue=1 + number % 2,
            preceding_job=number - 1 if number > 1 else None,
            think_s=5 if number > 1 else None,
        )
        for number in range(1, count + 1)
    )
    header = SwfHeader() if start_s is None else SwfHeader().with_field("UnixStartTime", start_s)
    return SwfTrace(header, jobs, name)


def test_filters_keep_what_they_name_and_say_so() -> None:
    kept = select_jobs(trace(), Selection(users=frozenset({2, 3}), not_queues=frozenset({1}), most_procs=10))
    assert kept.jobs
    assert all(
        job.user in (2, 3) and job.queue == 2 and job.procs is not None and job.procs <= 10
        for job in kept.jobs
    )
    assert kept.header.notes[-1] == (
        f"osub select: {len(kept.jobs)} of 100 jobs, users 2 3, not queues 1, processors ..10"
    )


def test_links_to_jobs_that_are_filtered_out_are_dropped() -> None:
    kept = select_jobs(trace(), Selection(queues=frozenset({2})))
    assert all(job.preceding_job is None and job.think_s is None for job in kept.jobs)


def test_unknown_fields_fit_no_wanted_number_and_no_unwanted_one() -> None:
    bare = SwfTrace(SwfHeader(), (SwfJob(1, 0), SwfJob(2, 0, user=1)))
    assert [job.job_number for job in select_jobs(bare, Selection(users=frozenset({1}))).jobs] == [2]
    assert [job.job_number for job in select_jobs(bare, Selection(not_users=frozenset({1}))).jobs] == [1]


def test_filter_that_leaves_nothing_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no job of lab is left with users 99"):
        select_jobs(trace(), Selection(users=frozenset({99})))


def test_filter_that_asks_for_nothing_changes_nothing() -> None:
    assert select_jobs(trace(), Selection()) is not None
    assert select_jobs(trace(), Selection()).jobs == trace().jobs


@pytest.mark.parametrize(("factor", "count"), [(0.25, 25), (1, 100), (1.3, 130), (3.5, 350)])
def test_arrival_scaling_keeps_the_time_and_changes_the_number(factor: float, count: int) -> None:
    scaled = scale_arrivals(trace(), factor, seed=3)
    assert len(scaled.jobs) == count
    assert len({job.job_number for job in scaled.jobs}) == count
    submits = [job.submit_s for job in scaled.jobs]
    assert submits == sorted(submits)
    assert submits[-1] < 6000 + 1800
    assert scaled == scale_arrivals(trace(), factor, seed=3)


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf"), 0.001])
def test_impossible_arrival_factors_are_usage_errors(factor: float) -> None:
    with pytest.raises(UsageError, match="factor"):
        scale_arrivals(trace(), factor)


def test_larger_tag_shares_contain_smaller_ones() -> None:
    few = tag_jobs(trace(), TagField.QUEUE, 9, 0.2, seed=5)
    many = tag_jobs(trace(), TagField.QUEUE, 9, 0.6, seed=5)
    small = {job.job_number for job in few.jobs if job.queue == 9}
    large = {job.job_number for job in many.jobs if job.queue == 9}
    assert (len(small), len(large)) == (20, 60)
    assert small < large


def test_tagging_by_user_takes_all_jobs_of_the_drawn_users_among_the_chosen() -> None:
    narrow = Selection(most_procs=4)
    tagged = tag_jobs(trace(), TagField.PARTITION, 3, 0.5, among=narrow, by=DrawBy.USER, name="ondemand")
    users = {job.user for job in tagged.jobs if job.partition == 3}
    assert 1 <= len(users) <= 4
    for job in tagged.jobs:
        assert (job.partition == 3) == (job.user in users and (job.procs or 0) <= 4)
    assert tagged.header.partitions == {3: "ondemand"}


@pytest.mark.parametrize("field", list(TagField))
def test_every_field_can_carry_the_tag(field: TagField) -> None:
    assert all(getattr(job, field.value) == 8 for job in tag_jobs(trace(), field, 8).jobs)


def test_tags_that_can_go_nowhere_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="may be tagged"):
        tag_jobs(trace(), TagField.QUEUE, 9, among=Selection(users=frozenset({99})))
    with pytest.raises(UsageError, match="share"):
        tag_jobs(trace(), TagField.QUEUE, 9, share=2)


def test_merged_jobs_are_in_order_under_unique_numbers_with_their_links() -> None:
    merged = merge_traces([trace(10), trace(10, "other")])
    assert len({job.job_number for job in merged.jobs}) == 20
    submits = [job.submit_s for job in merged.jobs]
    assert submits == sorted(submits)
    moved = [job for job in merged.jobs if job.job_number > 10]
    assert all(job.preceding_job is None or job.preceding_job > 10 for job in moved)
    assert "lab (10 jobs), other (10 jobs), aligned by start" in merged.header.notes[-1]


def test_merging_by_dates_moves_jobs_to_their_instants() -> None:
    merged = merge_traces([trace(3, start_s=10_000_000), trace(3, start_s=9_990_000)], Align.DATES)
    assert merged.header.unix_start_time_s == 9_990_000
    assert [job.submit_s for job in merged.jobs] == [60, 120, 180, 10_060, 10_120, 10_180]


def test_users_of_merged_traces_can_be_kept_apart() -> None:
    assert len({job.user for job in merge_traces([trace(), trace()]).jobs}) == 7
    assert len({job.user for job in merge_traces([trace(), trace()], same_users=False).jobs}) == 13


def test_traces_without_dates_cannot_be_merged_by_them() -> None:
    with pytest.raises(UsageError, match="UnixStartTime"):
        merge_traces([trace(), trace()], Align.DATES)
    with pytest.raises(UsageError, match="at least one"):
        merge_traces([])


def test_small_short_batch_jobs_become_interactive_until_there_are_enough() -> None:
    some = make_interactive(trace(), 20, seed=2, queue=0, most_cores=12, most_run_s=5000)
    chosen = [job for job in some.jobs if job.queue == 0]
    assert len(chosen) == 20
    assert all((job.procs or 0) <= 12 and (job.run_s or 0) < 5000 for job in chosen)
    more = make_interactive(trace(), 25, seed=2, queue=0, most_cores=12, most_run_s=5000)
    assert {job.job_number for job in chosen} < {job.job_number for job in more.jobs if job.queue == 0}
    assert make_interactive(some, 10) is some


def test_more_interactive_jobs_than_candidates_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="100 interactive jobs cannot be reached"):
        make_interactive(trace(), 100)


def test_trace_with_one_queue_gets_a_batch_queue_for_the_rest() -> None:
    alike = SwfTrace(SwfHeader(), tuple(SwfJob(n, n, run_s=5, allocated_procs=1, queue=0) for n in range(10)))
    changed = make_interactive(alike, 4)
    assert sorted(job.queue or 0 for job in changed.jobs) == [0] * 4 + [1] * 6
