from __future__ import annotations

import polars as pl
import pytest

from analysis.metrics.run_metrics import completion_by_cpu_time, completion_by_jobs, origin_s


def frame(ends: list[float | None], work: list[float | None] | None = None) -> pl.DataFrame:
    starts = [None if end is None else 0.0 for end in ends]
    columns = {
        "due_s": [5.0] * len(ends),
        "start_s": starts,
        "end_s": ends,
        "work_core_s": work or [1.0] * len(ends),
    }
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))


def test_ninety_percent_of_ten_jobs_are_done_with_the_ninth() -> None:
    done = completion_by_jobs(frame([float(end) for end in range(10, 110, 10)]), 0.0)
    assert [done.at(percent) for percent in (10, 90, 90.1, 95, 100)] == [10, 90, 100, 100, 100]


def test_time_counts_from_the_first_due_time() -> None:
    jobs = frame([15.0])
    assert completion_by_jobs(jobs, origin_s(jobs)).at(100) == 10


def test_jobs_that_end_together_are_one_step() -> None:
    done = completion_by_jobs(frame([3.0, 3.0, 7.0, 9.0]), 0.0)
    assert (done.time_s.tolist(), done.share.tolist()) == ([3, 7, 9], [0.5, 0.75, 1])


def test_cpu_time_weighs_the_jobs_and_unknown_work_is_missing() -> None:
    done = completion_by_cpu_time(frame([1.0, 2.0, 3.0, None], [1.0, 8.0, None, 5.0]), 0.0)
    assert (done.missing, done.at(90), done.share.tolist()) == (2, 2, pytest.approx([1 / 9, 1]))


def test_without_any_job_there_is_no_completion() -> None:
    assert completion_by_jobs(frame([None]), 0.0).at(90) is None
    assert completion_by_jobs(frame([]), 0.0).at(90) is None


def test_jobs_without_work_are_done_at_once() -> None:
    assert completion_by_cpu_time(frame([4.0], [0.0]), 0.0).at(100) == 4


def test_a_thinned_curve_keeps_its_ends() -> None:
    done = completion_by_jobs(frame([float(end) for end in range(1, 1001)]), 0.0)
    thin = done.thinned(50)
    assert len(thin.time_s) <= 50
    assert (thin.time_s[0], thin.time_s[-1], thin.share[-1]) == (1, 1000, 1)
