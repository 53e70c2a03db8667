from __future__ import annotations

import pytest

from foundation.errors import UsageError
from workloads.swf import InteractivePattern, SwfHeader, SwfJob, SwfTrace
from workloads.trace.local_clock import stretch
from workloads.trace.transforms.busy_window import clip_run_times, compress, compress_apart

JOB = SwfJob(
    1,
    submit_s=600,
    wait_s=60,
    run_s=50,
    cpu_s=30,
    requested_s=120,
    think_s=6,
    used_memory_kib=100,
    extension=InteractivePattern(5, 5, (5, 20), (15,)).to_extension(),
)


def trace(*jobs: SwfJob) -> SwfTrace:
    return SwfTrace(SwfHeader(), jobs)


def test_every_time_is_divided_and_nothing_else() -> None:
    (job,) = compress(trace(JOB), 10).jobs
    assert (job.submit_s, job.wait_s, job.run_s, job.cpu_s, job.requested_s, job.think_s) == (
        60,
        6,
        5,
        3,
        12,
        0.6,
    )
    assert job.used_memory_kib == 100
    assert job.pattern == InteractivePattern(0.5, 0.5, (0.5, 2), (1.5,))


def test_times_are_rounded_to_the_millisecond() -> None:
    (job,) = compress(trace(JOB), 7).jobs
    assert (job.submit_s, job.run_s) == (85.714, 7.143)


def test_arrivals_and_jobs_can_have_factors_of_their_own() -> None:
    result = compress_apart(trace(JOB), 100, 10)
    assert (result.jobs[0].submit_s, result.jobs[0].wait_s, result.jobs[0].run_s) == (6, 0.6, 5)
    assert result.header.notes == ("osub compress: speed-up 100 between jobs, 10 within",)


@pytest.mark.parametrize("speedup", [0, -1, float("inf"), float("nan")])
def test_impossible_speedup_is_a_usage_error(speedup: float) -> None:
    with pytest.raises(UsageError, match="--speedup"):
        compress(trace(JOB), speedup)


def test_clipping_reports_how_many() -> None:
    jobs = (
        JOB,
        SwfJob(2, 0, run_s=1, requested_s=1),
        SwfJob(3, 0, run_s=999, requested_s=2000),
        SwfJob(4, 0),
    )
    clipped, report = clip_run_times(trace(*jobs), 10, 100)
    assert [job.run_s for job in clipped.jobs] == [50, 10, 100, None]
    assert [job.requested_s for job in clipped.jobs] == [120, 10, 200.2, None]
    assert (report.raised, report.cut, report.jobs) == (1, 1, 4)
    assert clipped.header.notes == ("osub clip: run times to 10 to 100 s, 1 raised, 1 cut",)


def test_clipped_job_keeps_its_busy_and_idle_shares() -> None:
    clipped, _ = clip_run_times(trace(JOB), 100, 100)
    assert clipped.jobs[0].pattern == InteractivePattern(10, 10, (10, 40), (30,))
    assert clipped.jobs[0].cpu_s == 60


def test_bounds_out_of_order_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="shortest <= longest"):
        clip_run_times(trace(JOB), 10, 5)


def test_stretching_rounds_the_instants_not_the_periods() -> None:
    thirds = InteractivePattern(1, 1, (1,), ())
    assert stretch(thirds, 1000) == InteractivePattern(0.333, 0.333, (0.334,), ())
    assert stretch(InteractivePattern(0, 0, (), ()), 1000) == InteractivePattern(1, 0, (), ())
