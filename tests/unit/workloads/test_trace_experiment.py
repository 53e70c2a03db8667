from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from foundation.errors import OutputError, UsageError
from workloads.swf import SwfHeader, SwfJob, SwfTrace
from workloads.trace.scaling.replayable_trace import (
    ScalingSource,
    ScalingTarget,
    is_gaia,
    make_experiment,
    window_of_day,
)
from workloads.trace.scaling_picture import write_picture
from workloads.trace.trace_summary import summarize_kinds
from workloads.trace.transforms.busy_window import BusyWindow

MONDAY_S = 1400457600  # 2014-05-19 00:00 in Greenwich
DAY_S = 86_400
WINDOW = BusyWindow(0, 3 * 3600, 20 * 3600, DAY_S, "the first day")
SOURCE = ScalingSource(WINDOW, from_procs=1024)
TARGET = ScalingTarget(8, 8)


def two_days() -> SwfTrace:
    """Two days of batch jobs on 1,024 cores; on the second, a wide and ten narrow interactive jobs."""
    jobs = [
        SwfJob(
            number, number * 300, run_s=600 + 40 * (number % 50), allocated_procs=2 ** (number % 6), queue=1
        )
        for number in range(1, 2 * DAY_S // 300)
    ]
    sessions = [
        SwfJob(1000 + i, DAY_S + i * 3600, run_s=1000, allocated_procs=16 if i == 3 else 2, queue=0)
        for i in range(11)
    ]
    header = SwfHeader().with_field("UnixStartTime", MONDAY_S).with_field("MaxProcs", 1024)
    ordered = tuple(sorted([*jobs, *sessions], key=lambda job: job.submit_s))
    return SwfTrace(header, ordered, "lab")


@pytest.mark.slow
def test_interactive_jobs_of_another_day_come_at_their_hours_and_fit_a_node() -> None:
    source = replace(SOURCE, interactive_day=date(2014, 5, 20), drop_wider_than=12)
    experiment = make_experiment(two_days(), source, TARGET)
    sessions = [job for job in experiment.trace.jobs if job.queue == 0]
    assert [job.submit_s for job in sessions] == [i * 3600 for i in range(11) if i != 3]
    assert experiment.dropped == 1
    assert all(job.pattern is not None and job.pattern.total_s == job.run_s for job in sessions)
    narrowed = make_experiment(two_days(), replace(source, drop_wider_than=None), TARGET)
    assert sum(job.queue == 0 for job in narrowed.trace.jobs) == 11
    assert max(job.procs or 0 for job in narrowed.trace.jobs if job.queue == 0) <= 8


def test_long_batch_jobs_are_cut_and_interactive_ones_left_alone() -> None:
    source = replace(SOURCE, interactive_day=date(2014, 5, 20), longest_run_s=900)
    experiment = make_experiment(two_days(), source, TARGET)
    assert experiment.clipping is not None
    assert experiment.clipping.cut > 0
    assert max(job.run_s or 0 for job in experiment.trace.jobs if job.queue == 1) == 900
    assert {job.run_s for job in experiment.trace.jobs if job.queue == 0} == {1000}


@pytest.mark.slow
def test_time_compression_comes_last() -> None:
    slow = make_experiment(two_days(), SOURCE, TARGET)
    fast = make_experiment(two_days(), SOURCE, replace(TARGET, speedup=60))
    assert [job.submit_s * 60 for job in fast.trace.jobs] == pytest.approx(
        [job.submit_s for job in slow.trace.jobs], abs=0.04
    )
    assert fast.report == slow.report


def test_provenance_of_every_step_is_in_the_header() -> None:
    source = replace(SOURCE, interactive_day=date(2014, 5, 20), longest_run_s=900)
    notes = make_experiment(two_days(), source, replace(TARGET, speedup=2)).trace.header.notes
    steps = [note.split(":")[0] for note in notes]
    assert steps == [
        "osub window", "osub window", "osub merge", "osub scale", "osub clip", "osub interactive",
        "osub compress",
    ]  # fmt: skip


def test_progress_counts_the_half_hours() -> None:
    seen: list[tuple[int, int]] = []
    make_experiment(two_days(), SOURCE, TARGET, lambda done, total: seen.append((done, total)))
    assert seen == [(done, 48) for done in range(1, 49)]


def test_slot_errors_are_those_of_the_reported_cores() -> None:
    report = make_experiment(two_days(), SOURCE, TARGET).report
    assert len(report.slot_errors) == len(report.slots) == 48
    assert sum(report.slot_cores) == report.cores
    assert [before / 1024 * 64 for before in report.slot_before] == pytest.approx(report.slot_targets)


def test_days_without_interactive_jobs_or_dates_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="no interactive job in these hours of 2014-05-19"):
        make_experiment(two_days(), replace(SOURCE, interactive_day=date(2014, 5, 19)), TARGET)
    undated = replace(two_days(), header=SwfHeader().with_field("MaxProcs", 1024))
    with pytest.raises(UsageError, match="no dates"):
        make_experiment(undated, replace(SOURCE, interactive_day=date(2014, 5, 20)), TARGET)
    with pytest.raises(UsageError, match="no dates"):
        window_of_day(undated, date(2014, 5, 20), 11, 3600)


def test_window_of_a_day_starts_at_its_hour() -> None:
    window = window_of_day(two_days(), date(2014, 5, 20), 11.5, 3600)
    assert (window.start_s, window.end_s) == (DAY_S + 11.5 * 3600, DAY_S + 12.5 * 3600)
    assert not is_gaia(two_days())


def test_kinds_are_distinguished_and_batch_jobs_are_busy_all_along() -> None:
    source = replace(SOURCE, interactive_day=date(2014, 5, 20), drop_wider_than=12)
    kinds = summarize_kinds(make_experiment(two_days(), source, TARGET).scaled)
    assert (kinds["interactive"].jobs, kinds["interactive"].max_procs) == (10, 2)
    assert kinds["interactive"].max_busy_s is not None
    assert kinds["interactive"].max_busy_s <= 1000
    assert kinds["batch"].mean_busy_s == kinds["batch"].mean_run_s
    empty = summarize_kinds(SwfTrace(SwfHeader(), ()))["batch"]
    assert (empty.jobs, empty.max_procs, empty.mean_run_s) == (0, None, None)


@pytest.mark.slow
def test_picture_is_complete_in_itself(tmp_path: Path) -> None:
    source = replace(SOURCE, interactive_day=date(2014, 5, 20))
    experiment = make_experiment(two_days(), source, TARGET)
    page = tmp_path / "scaled.html"
    write_picture(page, experiment, WINDOW, 1024, 0)
    text = page.read_text()
    assert text.count("<figure") == 4
    assert "Kolmogorov-Smirnov" in text
    assert "src=" not in text.split("</script>")[-1]
    with pytest.raises(OutputError, match="cannot write"):
        write_picture(tmp_path / "no" / "x.html", experiment, WINDOW, 1024, 0)
