"""Scaling of the real trace that the thesis scaled, beside what the thesis reports of its own."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.golden import TRACES, named, small, small_and_whole
from workloads.swf import SwfTrace, read_swf, swf_lines, write_swf
from workloads.trace.local_clock import TraceClock
from workloads.trace.scaling.half_hours import scale_trace
from workloads.trace.scaling.miniature import make_miniature
from workloads.trace.scaling.replayable_trace import THESIS, ScalingTarget, is_gaia, make_experiment
from workloads.trace.trace_summary import THESIS_TABLE_7_2, summarize_kinds
from workloads.trace.transforms.busy_window import THESIS_WINDOW, cut_window, find_window

GAIA = "UniLu-Gaia-2014-1.swf.gz"
LOGS = [
    *(
        path
        for name in (GAIA, "KTH-SP2-1996-2.1-cln.swf.gz", "lublin_256.swf.gz")
        for path in small_and_whole(name)
    ),
    *TRACES.glob("theta_2022.swf.gz"),
]


@pytest.fixture(scope="module")
def gaia() -> SwfTrace:
    """The days that the thesis replays."""
    return read_swf(small(GAIA))


@pytest.fixture(scope="module", params=small_and_whole(GAIA), ids=named)
def any_gaia(request: pytest.FixtureRequest) -> SwfTrace:
    return read_swf(request.param)


def test_thesis_window_starts_with_job_2814_on_a_thursday(gaia: SwfTrace) -> None:
    window = cut_window(gaia, THESIS_WINDOW.start_s, THESIS_WINDOW.length_s)
    assert window.jobs[0].job_number == 2814
    date = TraceClock.of(window.header, 0).date(0)
    assert date is not None
    assert date.isoformat() == "2014-06-05T11:42:14+02:00"


@pytest.mark.parametrize("seed", range(5))
def test_thesis_window_scaled_to_its_cluster_keeps_its_character(gaia: SwfTrace, seed: int) -> None:
    window = cut_window(gaia, THESIS_WINDOW.start_s, THESIS_WINDOW.length_s)
    scaled, report = scale_trace(window, 12, 12, seed, from_procs=1800)
    widest = max(job.procs or 0 for job in scaled.jobs)
    # thesis Table 7.2: 68 batch jobs, the widest has 25 cores
    print(
        f"seed {seed}: {report.jobs_after} batch jobs, widest {widest}, {report.slots_within} of "
        f"{len(report.slot_targets)} slots within 10 %, KS {report.arrival_distance:.3f}"
    )
    assert 40 <= report.jobs_after <= 100
    assert widest <= 144
    assert report.slots_within >= 0.8 * len(report.slot_targets)
    assert report.cores == pytest.approx(report.target_cores, rel=0.05)
    assert report.serial_after == pytest.approx(report.serial_before, abs=0.06)
    assert report.power_of_two_after == pytest.approx(report.power_of_two_before, abs=0.06)
    assert report.arrival_distance < 0.12


def test_busy_day_of_gaia_becomes_a_minute_on_two_cores(any_gaia: SwfTrace) -> None:
    small = make_miniature(any_gaia, 2, 1, 70)
    assert small.makespan_s <= 70
    assert len(small.trace.jobs) >= 10
    assert small.made_interactive == 0
    assert small.clipping.raised <= 0.25 * len(small.trace.jobs)


def test_a_busy_weekday_is_found(any_gaia: SwfTrace) -> None:
    window = find_window(any_gaia)
    date = TraceClock.of(any_gaia.header, 0).date(window.active_start_s)
    assert date is not None
    assert date.weekday() < 5
    assert 7 <= date.hour <= 15
    assert 4 * 3600 <= window.active_end_s - window.active_start_s <= 12 * 3600


@pytest.mark.parametrize("source", LOGS, ids=named)
def test_real_traces_come_back_byte_for_byte(source: Path, tmp_path: Path) -> None:
    trace = read_swf(source)
    write_swf(tmp_path / "copy.swf", trace)
    assert (tmp_path / "copy.swf").read_bytes() == gzip.decompress(source.read_bytes())
    plain = replace(trace, jobs=tuple(replace(job) for job in trace.jobs))
    assert b"".join(swf_lines(plain.header, plain.jobs)).count(b"\n") == len(trace.jobs) + len(
        trace.header.comments
    )


def test_interactive_jobs_of_the_experiment_are_those_of_table_7_2(gaia: SwfTrace) -> None:
    experiment = make_experiment(gaia, THESIS, ScalingTarget(12, 12))
    assert is_gaia(gaia)
    found, published = summarize_kinds(experiment.scaled), THESIS_TABLE_7_2
    print(found)
    interactive = found["interactive"]
    assert (interactive.jobs, interactive.max_procs, interactive.max_run_s) == (14, 12, 43_209)
    assert round(interactive.mean_run_s or 0) == published["interactive"].mean_run_s
    assert found["batch"].max_run_s == published["batch"].max_run_s
    assert found["batch"].jobs == pytest.approx(published["batch"].jobs, abs=12)


def test_no_interactive_job_follows_until_8_the_next_morning(gaia: SwfTrace) -> None:
    """As the thesis says below its Figure 7.3: so the day is the one it took."""
    day = cut_window(gaia, THESIS_WINDOW.start_s + 6 * 86_400, 86_400)
    clock = TraceClock.of(day.header, 0)
    dates = [clock.date(job.submit_s) for job in day.jobs if job.queue == 0 and (job.procs or 0) <= 12]
    last, following = dates[13], dates[14]
    assert last is not None
    assert following is not None
    assert f"{last:%d %H:%M}" == "11 22:01"
    assert f"{following:%d %H}" == "12 08"
