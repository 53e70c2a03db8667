"""Traces generated: models, interactive jobs, the thesis's days."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from foundation.errors import InputError, OutputError, UsageError
from tests.fixtures.golden import small
from workloads.job_shape import job_shape
from workloads.swf import SwfHeader, SwfJob, SwfTrace, read_swf, write_swf
from workloads.trace.local_clock import to_ms
from workloads.trace.models.generated_trace import generate_trace
from workloads.trace.models.interactive_jobs import (
    embed_patterns,
    interactive_flags,
    tag_interactive,
    utilisation,
)
from workloads.trace.scaling import thesis_days
from workloads.trace.scaling.miniature import LONGEST_SHARE, fcfs_makespan_s, make_miniature
from workloads.trace.scaling.replayable_trace import (
    ClusterSize,
    ScalingSource,
    ScalingTarget,
    is_gaia,
    keep_shares,
    make_experiment,
    window_of_day,
)
from workloads.trace.scaling_picture import write_picture
from workloads.trace.trace_summary import THESIS_TABLE_7_2, summarize_kinds
from workloads.trace.transforms.busy_window import BusyWindow


def load_of(trace_load: float, **arguments: float) -> float:
    trace = generate_trace(1500, 12, 12, load=trace_load, **arguments)  # type: ignore[arg-type]
    work_s = sum((job.procs or 0) * (job.run_s or 0) for job in trace.jobs)
    return work_s / 144 / (trace.jobs[-1].submit_s - trace.jobs[0].submit_s)


def test_jobs_are_complete_and_fit_the_machine() -> None:
    trace = generate_trace(1000, 8, 6, interactive_share=0.25)
    assert [job.job_number for job in trace.jobs] == list(range(1, 1001))
    submits = [job.submit_s for job in trace.jobs]
    assert submits == sorted(submits)
    for job in trace.jobs:
        assert job.procs is not None
        assert 1 <= job.procs <= (6 if job.queue == 0 else 48)
        assert job.run_s is not None
        assert job.requested_s is not None
        assert 1 <= job.run_s <= job.requested_s
        assert (job.pattern is not None) == (job.queue == 0)
        if job.pattern is not None:
            assert job.pattern.total_s == job.run_s
    assert sum(job.queue == 0 for job in trace.jobs) == 250


def test_same_arguments_same_trace() -> None:
    assert generate_trace(50, 4, 4, seed=7) == generate_trace(50, 4, 4, seed=7)
    assert generate_trace(50, 4, 4, seed=7).jobs != generate_trace(50, 4, 4, seed=8).jobs


@pytest.mark.parametrize("load", [0.3, 0.9])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_load_is_reached(load: float, share: float) -> None:
    assert load_of(load, interactive_share=share) == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize(
    ("jobs", "nodes", "cores"), [(1, 1, 1), (2, 1, 1), (30, 1, 1), (30, 2, 1), (30, 1, 3)]
)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_small_machines_and_few_jobs_are_fine(jobs: int, nodes: int, cores: int, share: float) -> None:
    trace = generate_trace(jobs, nodes, cores, interactive_share=share)
    assert len(trace.jobs) == jobs
    assert max(job.procs or 0 for job in trace.jobs) <= nodes * cores


def test_more_jobs_arrive_by_day_than_by_night() -> None:
    trace = generate_trace(3000, 12, 12, load=None)
    hours = [int(job.submit_s % 86_400 // 3600) for job in trace.jobs]
    assert sum(10 <= hour < 18 for hour in hours) > 3 * sum(hour < 8 for hour in hours)


def test_generated_trace_survives_its_file(tmp_path: Path) -> None:
    trace = generate_trace(200, 12, 12, interactive_share=0.3)
    write_swf(tmp_path / "g.swf.gz", trace)
    again = read_swf(tmp_path / "g.swf.gz")
    assert (again.jobs, again.header, again.header.max_procs) == (trace.jobs, trace.header, 144)


@pytest.mark.parametrize("arguments", [{"jobs": 0}, {"nodes": 0}, {"interactive_share": 2}, {"load": 0}])
def test_arguments_out_of_range_are_a_usage_error(arguments: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        generate_trace(**{"jobs": 10, "nodes": 2, "cores_per_node": 2, **arguments})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_job_divides_equally_over_nodes_of_the_machine(seed: int) -> None:
    """A job of 29 processors would need 29 nodes of one, or one node of 29: N8C4 has neither."""
    trace = generate_trace(3000, 8, 4, seed, interactive_share=0.2, interactive_procs=32)
    assert all(job_shape(job.procs or 0, 8, 4) is not None for job in trace.jobs)
    assert {job.procs for job in trace.jobs} >= {1, 2, 3, 4, 8, 16, 28, 32}


def trace() -> SwfTrace:
    jobs = [SwfJob(i, i, run_s=i * 100, allocated_procs=i % 20 + 1, queue=i % 4) for i in range(1, 101)]
    return SwfTrace(SwfHeader(), tuple(jobs))


def test_only_the_queue_gets_periods_and_they_fill_the_run_time() -> None:
    embedded = embed_patterns(trace(), queue=0, seed=3)
    for before, after in zip(trace().jobs, embedded.jobs, strict=True):
        if before.queue != 0:
            assert after == before
        else:
            assert after.pattern is not None
            assert after.pattern.total_s == before.run_s
    assert embedded.header.notes == ("osub interactive: periods for 25 jobs of queue 0, seed 3",)


def test_jobs_that_have_periods_keep_them() -> None:
    once = embed_patterns(trace(), seed=3)
    assert embed_patterns(once, seed=4) == once


def test_same_seed_same_periods() -> None:
    assert embed_patterns(trace(), seed=3) == embed_patterns(trace(), seed=3)
    assert embed_patterns(trace(), seed=3).jobs != embed_patterns(trace(), seed=4).jobs


def test_tagging_moves_narrow_jobs_and_empties_the_queue_of_others() -> None:
    tagged = tag_interactive(trace(), share=0.2, max_procs=4, queue=0, seed=1)
    chosen = [job for job in tagged.jobs if job.queue == 0]
    assert len(chosen) == 20
    assert all((job.procs or 0) <= 4 for job in chosen)
    assert {job.queue for job in tagged.jobs} == {0, 1, 2, 3, 4}


def test_tagging_takes_as_many_as_are_narrow_enough() -> None:
    assert sum(job.queue == 9 for job in tag_interactive(trace(), 1.0, 1, queue=9).jobs) == 5
    with pytest.raises(UsageError, match="share"):
        tag_interactive(trace(), 1.5, 1)


def test_trace_with_one_queue_distinguishes_no_kinds() -> None:
    assert sum(interactive_flags(trace(), 0)) == 25
    assert sum(interactive_flags(trace(), None)) == 0
    alike = SwfTrace(SwfHeader(), (SwfJob(1, 0, queue=0), SwfJob(2, 0, queue=0)))
    assert interactive_flags(alike, 0) == [False, False]


def test_utilisation_is_busy_over_total() -> None:
    pattern = embed_patterns(trace(), seed=3).jobs[99].pattern
    assert pattern is not None
    share = utilisation(pattern)
    assert share is not None
    assert np.isclose(share, pattern.busy_s / pattern.total_s)


THESIS = ClusterSize(12, 12, 12)


@pytest.fixture(scope="module")
def log() -> SwfTrace:
    return read_swf(small("UniLu-Gaia-2014-1.swf.gz"))


def job(number: int, run_s: float, procs: int, queue: int = 1) -> SwfJob:
    return SwfJob(
        job_number=number, submit_s=100.0 * number, run_s=run_s, allocated_procs=procs,
        requested_procs=procs, requested_s=run_s, queue=queue,
    )  # fmt: skip


def trace_of(*jobs: SwfJob) -> SwfTrace:
    return SwfTrace(SwfHeader(()), jobs, "made")


def share_of(one: SwfJob, procs: int) -> float:
    return (one.run_s or 0) * (one.procs or 0) / procs


def test_the_first_jobs_are_those_of_table_7_8() -> None:
    with small("thesis_table_7_8.csv").open(newline="") as stream:
        rows = [
            (
                int(row["trace_job"]),
                int(row["arrival_s"]),
                int(row["run_s"]),
                int(row["nodes"]) * int(row["cores_per_node"]),
            )
            for row in csv.DictReader(stream)
        ]
    assert [(one.number, one.arrival_s, one.run_s, one.cores) for one in thesis_days.FIRST_JOBS] == rows


@pytest.mark.parametrize("seed", [1, 2])
def test_the_whole_day_has_the_figures_of_table_7_2(log: SwfTrace, seed: int) -> None:
    kinds = summarize_kinds(thesis_days.whole_day(log, seed))
    for kind, thesis in THESIS_TABLE_7_2.items():
        ours = kinds[kind]
        assert (ours.jobs, ours.max_procs, ours.max_run_s) == (
            thesis.jobs,
            thesis.max_procs,
            thesis.max_run_s,
        )
        assert ours.mean_run_s == pytest.approx(thesis.mean_run_s, rel=1e-3)
        assert ours.max_busy_s == pytest.approx(thesis.max_busy_s, rel=1e-3)
        assert ours.mean_busy_s == pytest.approx(thesis.mean_busy_s, rel=1e-3)


@pytest.mark.slow
def test_a_seed_is_one_draw(log: SwfTrace) -> None:
    assert thesis_days.whole_day(log, 3).jobs == thesis_days.whole_day(log, 3).jobs
    assert {one.job_number for one in thesis_days.whole_day(log, 3).jobs} != {
        one.job_number for one in thesis_days.whole_day(log, 4).jobs
    }


def test_the_first_hours_have_the_busy_times_that_the_thesis_reports(log: SwfTrace) -> None:
    jobs = {one.job_number: one for one in thesis_days.first_hours(log).jobs}
    assert len(jobs) == 29
    busy = {number: one.pattern.busy_s for number, one in jobs.items() if one.pattern is not None}
    assert busy[thesis_days.BUSIEST_JOB] == pytest.approx(7299)
    assert busy[thesis_days.JOB_OF_FIGURE_7_8] == pytest.approx(7217)
    assert all(sum(one.pattern.periods_s) == pytest.approx(one.run_s) for one in jobs.values() if one.pattern)


def test_another_log_is_refused_and_the_message_says_where_the_right_one_is() -> None:
    with pytest.raises(InputError, match="osub trace fetch UniLu-Gaia-2014-1"):
        thesis_days.whole_day(trace_of(job(1, 10, 1)))


def test_run_times_are_stretched_to_a_sum_and_cut_at_the_longest() -> None:
    made = thesis_days.stretched_to([job(1, 100, 1), job(2, 1000, 1), job(3, 14000, 1)], 20_000)
    assert sum(one.run_s or 0 for one in made) == pytest.approx(20_000, rel=1e-3)
    assert [one.run_s for one in made] == sorted(one.run_s or 0 for one in made)
    assert all(one.run_s == 14_410 for one in thesis_days.stretched_to([job(1, 5, 1)], 1e9))


def test_a_pattern_keeps_its_run_time_with_another_busy_time(log: SwfTrace) -> None:
    pattern = next(one.pattern for one in thesis_days.first_hours(log).jobs if one.job_number == 5057)
    assert pattern is not None
    other = thesis_days.with_busy_time(pattern, 100.0)
    assert sum(other.activations_s) == pytest.approx(100.0)
    assert sum(other.periods_s) == pytest.approx(sum(pattern.periods_s))


def test_a_job_keeps_its_share_of_the_system() -> None:
    trace = trace_of(job(1, 14410, 12), job(2, 9000, 5), job(3, 7200, 1), job(4, 14410, 25))
    kept = keep_shares(trace, THESIS, ClusterSize(2, 1, 2), 100.0, 0.0).trace
    assert [one.procs for one in kept.jobs] == [2, 1, 1, 2]
    for before, after in zip(trace.jobs, kept.jobs, strict=True):
        assert share_of(after, 2) == pytest.approx(share_of(before, 144) / 100, rel=0.01)
        assert after.submit_s == before.submit_s / 100


def test_batch_jobs_of_a_narrower_queue_are_narrower_and_longer() -> None:
    trace = trace_of(job(1, 14410, 12))
    wide = keep_shares(trace, THESIS, ClusterSize(2, 1, 2), 100.0, 0.0).trace.jobs[0]
    narrow = keep_shares(trace, THESIS, ClusterSize(2, 1, 1), 100.0, 0.0).trace.jobs[0]
    assert (wide.procs, narrow.procs) == (2, 1)
    assert narrow.run_s == pytest.approx(2 * (wide.run_s or 0), rel=0.001)


def test_a_cluster_of_the_same_size_keeps_every_size() -> None:
    trace = trace_of(job(1, 14410, 12), job(2, 100, 18), job(3, 100, 1), job(4, 50, 12, queue=0))
    kept = keep_shares(trace, THESIS, THESIS, 1.0, 0.0).trace
    assert [(one.procs, one.run_s) for one in kept.jobs] == [(one.procs, one.run_s) for one in trace.jobs]


def test_interactive_jobs_stay_on_one_node() -> None:
    kept = keep_shares(trace_of(job(1, 100, 12, queue=0)), THESIS, ClusterSize(2, 1, 2), 1.0, 0.0).trace
    assert kept.jobs[0].procs == 1


def test_short_jobs_are_raised_and_counted_and_ask_for_whole_minutes() -> None:
    kept = keep_shares(trace_of(job(1, 10, 1), job(2, 14410, 12)), THESIS, ClusterSize(2, 1, 2), 10.0, 1.0)
    assert (kept.raised, kept.trace.jobs[0].run_s) == (1, 1.0)
    assert [one.requested_s for one in kept.trace.jobs] == [120.0, 600.0]


@pytest.mark.parametrize("compression", [0.0, -1.0, float("inf"), float("nan")])
def test_a_compression_that_is_none_is_refused(compression: float) -> None:
    with pytest.raises(UsageError, match="compression"):
        keep_shares(trace_of(job(1, 10, 1)), THESIS, ClusterSize(2, 1, 2), compression, 1.0)


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
