from __future__ import annotations

from dataclasses import replace

import pytest

from foundation.errors import UsageError
from workloads.swf import SwfHeader, SwfJob, SwfTrace
from workloads.trace.local_clock import to_ms
from workloads.trace.models.generated_trace import generate_trace
from workloads.trace.scaling.miniature import LONGEST_SHARE, fcfs_makespan_s, make_miniature
from workloads.trace.transforms.busy_window import BusyWindow


@pytest.fixture(scope="module")
def month() -> SwfTrace:
    return generate_trace(800, 12, 12, interactive_share=0.2)


@pytest.mark.parametrize(("nodes", "cores"), [(1, 1), (2, 1), (4, 2), (12, 12)])
@pytest.mark.slow
def test_miniature_fits_cluster_and_time(month: SwfTrace, nodes: int, cores: int) -> None:
    small = make_miniature(month, nodes, cores, 70)
    jobs = small.trace.jobs
    assert small.makespan_s <= 70
    assert fcfs_makespan_s(jobs, nodes * cores, 0.5) == small.makespan_s
    assert max(job.procs or 0 for job in jobs) <= nodes * cores
    assert all(1 <= (job.run_s or 0) <= LONGEST_SHARE * 70 for job in jobs)
    assert any(job.queue == 0 for job in jobs)
    assert any(job.queue == 1 for job in jobs)
    assert small.trace.header.max_procs == nodes * cores


@pytest.mark.slow
def test_run_times_keep_their_order_and_patterns_fill_them(month: SwfTrace) -> None:
    small = make_miniature(month, 4, 2, 70)
    original = {job.job_number: job for job in month.jobs}
    pairs = sorted((original[job.job_number].run_s or 0, job.run_s or 0) for job in small.trace.jobs)
    assert [after for _, after in pairs] == sorted(after for _, after in pairs)
    for job in small.trace.jobs:
        if job.pattern is not None:
            assert sum(map(to_ms, job.pattern.periods_s)) == to_ms(job.run_s or 0)


def test_numbers_of_jobs_can_be_given(month: SwfTrace) -> None:
    small = make_miniature(month, 4, 2, 70, batch_jobs=12, interactive_jobs=5)
    assert sum(job.queue == 0 for job in small.trace.jobs) == 5
    assert sum(job.queue == 1 for job in small.trace.jobs) == pytest.approx(12, abs=1)
    assert small.made_interactive == 0


@pytest.mark.slow
def test_jobs_are_made_interactive_where_none_is(month: SwfTrace) -> None:
    batch_only = generate_trace(500, 12, 12)
    small = make_miniature(batch_only, 4, 2, 70, batch_jobs=12, interactive_jobs=5)
    interactive = [job for job in small.trace.jobs if job.queue == 0]
    assert len(interactive) == small.made_interactive == 5
    assert all(job.pattern is not None for job in interactive)


@pytest.mark.slow
def test_jobs_without_run_time_are_left_out(month: SwfTrace) -> None:
    holes = tuple(replace(job, run_s=None, extension=()) if job.job_number % 2 else job for job in month.jobs)
    small = make_miniature(replace(month, jobs=holes), 4, 2, 70)
    assert all(job.job_number % 2 == 0 for job in small.trace.jobs)


def test_trace_of_a_single_job_has_a_miniature() -> None:
    one = SwfTrace(SwfHeader(), (SwfJob(1, 500, run_s=100_000, allocated_procs=64),))
    small = make_miniature(one, 2, 1, 60)
    assert [(job.submit_s, job.procs) for job in small.trace.jobs][:1] == [(0, 2)]


@pytest.mark.slow
def test_too_many_jobs_for_the_time_are_a_usage_error(month: SwfTrace) -> None:
    with pytest.raises(UsageError, match="take fewer jobs or more time"):
        make_miniature(month, 2, 1, 20, batch_jobs=60, interactive_jobs=20)


def test_duration_too_short_is_a_usage_error(month: SwfTrace) -> None:
    with pytest.raises(UsageError, match="at least 4 s"):
        make_miniature(month, 2, 1, 3)


def test_window_without_a_job_to_run_is_a_usage_error() -> None:
    bare = SwfTrace(SwfHeader(), (SwfJob(1, 0), SwfJob(2, 10)))
    with pytest.raises(UsageError, match="both a size and a run time"):
        make_miniature(bare, 2, 1, 60)
    with pytest.raises(UsageError, match="no job of"):
        make_miniature(bare, 2, 1, 60, window=BusyWindow(100, 100, 200, 200, "empty"))


def test_first_come_first_served_makespan_of_a_small_case() -> None:
    jobs = [
        SwfJob(1, 0, run_s=10, allocated_procs=1),
        SwfJob(2, 1, run_s=5, allocated_procs=2),
        SwfJob(3, 2, run_s=1, allocated_procs=1),
    ]
    # 1 runs from 0 to 10, 2 waits for both processors until 15, 3 does not pass it
    assert fcfs_makespan_s(jobs, 2) == 16
    assert fcfs_makespan_s(jobs, 2, start_cost_s=1) == 19
    assert fcfs_makespan_s([], 2) == 0
