from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from analysis.metrics.derived_columns import MetricOptions, with_derived
from analysis.metrics.run_metrics import RunMetrics, measure
from foundation.records import JOBS, Placement, Run, SliceRecord, write_run
from foundation.records.columns import SLICES, Row
from foundation.records.row_types import JobRecord
from foundation.records.run_directory import load_run
from foundation.records.table_files import frame_of
from tests.fixtures.records import make_ended, make_info, make_job, make_trace
from tests.unit.analysis.test_verdict import made_run

HAND = [
    make_ended(1, cores=1, submit_s=0.0, start_s=0.0, end_s=10.0, dedicated_s=10.0, cpu_s=10.0),
    make_ended(2, cores=2, due_s=2.0, submit_s=2.0, start_s=10.0, end_s=30.0, dedicated_s=10.0, cpu_s=21.0),
    make_ended(
        3, kind="interactive", cores=1, due_s=5.0, submit_s=5.0, start_s=30.0, end_s=34.0,
        dedicated_s=4.0, busy_s=1.0,
    ),
    make_job(4, due_s=6.0, submit_s=None, state="REFUSED", placement=None),
]  # fmt: skip
PLACES = ["0", "0-1", "0"]


def hand_run(folder: Path, **info: object) -> Run:
    """Return a run of four jobs on one node of two cores; the numbers below were computed by hand."""
    jobs = [
        *(
            place_on(job, (0,) if place == "0" else (0, 1))
            for job, place in zip(HAND[:3], PLACES, strict=True)
        ),
        HAND[3],
    ]
    write_run(folder / "RUN", make_info(system="N1C2", **info), make_trace(folder), frame_of(jobs, JOBS))
    return load_run(folder / "RUN")


def place_on(job: JobRecord, cores: tuple[int, ...], node: str = "n1") -> JobRecord:
    return msgspec.structs.replace(job, placement=(Placement(node, cores),))


@pytest.fixture(name="metrics")
def _metrics(tmp_path: Path) -> RunMetrics:
    return measure(hand_run(tmp_path))


def test_wait_and_slowdowns_of_each_job() -> None:
    rows = with_derived(frame_of(HAND, JOBS)).to_dicts()
    assert [row["wait_s"] for row in rows] == [0, 8, 25, None]
    assert [row["run_s"] for row in rows] == [10, 20, 4, None]
    assert [row["slowdown"] for row in rows] == [1, 1.4, 7.25, None]
    assert [row["slowdown_osub"] for row in rows] == [1, 2.8, 7.25, None]
    assert [row["degradation"] for row in rows] == [1, 2, 1, None]
    assert [row["bounded_slowdown"] for row in rows] == [1, 2.8, 2.9, None]
    assert [row["work_core_s"] for row in rows] == [10, 20, 1, None]


def test_wait_of_all_and_by_kind(metrics: RunMetrics) -> None:
    everyone = metrics.kinds["all"].wait_s
    assert (everyone.known, everyone.missing, everyone.mean, everyone.median, everyone.max) == (
        3, 1, 11, 8, 25,
    )  # fmt: skip
    assert metrics.kinds["all"].waited_share == pytest.approx(2 / 3)
    assert (metrics.kinds["batch"].wait_s.max, metrics.kinds["interactive"].waited_share) == (8, 1)
    assert list(metrics.kinds) == ["all", "batch", "interactive"]


def test_jobs_without_a_value_are_counted_as_missing(metrics: RunMetrics) -> None:
    batch = metrics.kinds["batch"]
    assert (batch.jobs, batch.slowdown_osub.known, batch.slowdown_osub.missing) == (3, 2, 1)
    assert (batch.states, batch.completion_missing) == ({"COMPLETED": 2, "REFUSED": 1}, 1)
    assert metrics.cpu_missing == 1


def test_completion_by_jobs_and_by_cpu_time(metrics: RunMetrics) -> None:
    everyone = metrics.kinds["all"]
    assert everyone.completion_by_jobs_s == {"p90": 34, "p95": 34, "p100": 34}
    # Work of 10, 20 and 1 core seconds is done at 10, 30 and 34 s: 30 of 31 are 96.8%.
    assert everyone.completion_by_cpu_time_s == {"p90": 30, "p95": 30, "p100": 34}
    assert metrics.makespan_s == 34


def test_use_of_the_system(metrics: RunMetrics) -> None:
    # Core 0 for 34 s and core 1 for 20 s, of two cores in 34 s.
    assert metrics.utilisation_allocated == pytest.approx(54 / 68)
    assert metrics.cpu_utilisation == pytest.approx(31 / 68)
    assert metrics.shared_share == 0
    assert metrics.placement_missing == 0


def test_thresholds_are_options(tmp_path: Path) -> None:
    metrics = measure(hand_run(tmp_path), MetricOptions(wait_threshold_s=8, beta_s=29))
    assert metrics.kinds["all"].waited_share == pytest.approx(1 / 3)
    assert metrics.kinds["interactive"].bounded_slowdown.max == 1


def test_a_core_that_two_jobs_hold_is_in_use_once(tmp_path: Path) -> None:
    jobs = [
        place_on(make_ended(1, submit_s=0.0, start_s=0.0, end_s=10.0), (0,)),
        place_on(make_ended(2, submit_s=0.0, start_s=6.0, end_s=12.0), (0, 1)),
        place_on(make_ended(3, submit_s=0.0, start_s=12.0, end_s=14.0), (0,)),
        place_on(make_ended(4, submit_s=0.0, start_s=0.0, end_s=2.0), (0,), "n2"),
    ]
    write_run(tmp_path / "RUN", make_info(system="N2C2"), make_trace(tmp_path), frame_of(jobs, JOBS))
    metrics = measure(load_run(tmp_path / "RUN"))
    occupied = 14 + 6 + 2
    assert metrics.utilisation_allocated == pytest.approx(occupied / (4 * 14))
    assert metrics.shared_share == pytest.approx(4 / occupied)


def test_a_job_of_no_length_has_no_slowdown_but_a_bounded_one() -> None:
    job = make_ended(1, submit_s=0.0, start_s=3.0, end_s=3.0, dedicated_s=0.0)
    row = with_derived(frame_of([job], JOBS)).row(0, named=True)
    assert (row["slowdown"], row["slowdown_osub"], row["degradation"]) == (None, None, None)
    assert row["bounded_slowdown"] == 1


@pytest.mark.parametrize("jobs", [[], [make_job(1, state="LOST")]])
def test_a_run_in_which_nothing_ran_has_no_figures_and_no_error(tmp_path: Path, jobs: list[Row]) -> None:
    write_run(tmp_path / "RUN", make_info(), make_trace(tmp_path), frame_of(jobs, JOBS))
    metrics = measure(load_run(tmp_path / "RUN"))
    assert (metrics.makespan_s, metrics.utilisation_allocated, metrics.cpu_utilisation) == (None, None, None)
    assert metrics.kinds["all"].wait_s.max is None
    assert metrics.kinds["all"].completion_by_jobs_s["p90"] is None


def test_slices_are_measured_where_the_run_has_them(tmp_path: Path) -> None:
    slices = [
        SliceRecord(slice=0, start_s=0, length_s=1, job=101, node="n1", role="run", skew_us=100, freeze_us=50)
    ]
    write_run(
        tmp_path / "RUN",
        make_info(),
        make_trace(tmp_path),
        frame_of([make_ended()], JOBS),
        slices=frame_of(slices, SLICES),
    )
    metrics = measure(load_run(tmp_path / "RUN")).slices
    assert metrics is not None
    assert (metrics.slices, metrics.length_s, metrics.jobs) == (1, 1, 1)
    assert metrics.switching_share == pytest.approx(150e-6)
    assert metrics.fairness is None


def test_start_up_is_named_where_it_is_much_of_the_run(tmp_path: Path) -> None:
    run = made_run(tmp_path, "short", wait_s=1, degradation=1.9, noise=0.0)
    (note,) = measure(run).notes
    assert note.startswith("No two jobs share a core: its degradation of 1.90 is start-up")
    assert "a median of 90.0 s against 100.0 s of work" in note
    assert not measure(replace(run, info=msgspec.structs.replace(run.info, multiplicity=2))).notes


def test_long_jobs_and_simulations_need_no_word(tmp_path: Path) -> None:
    assert not measure(made_run(tmp_path, "long", wait_s=1, degradation=1.05)).notes
    assert not measure(made_run(tmp_path, "sim", wait_s=1, degradation=1.9, kind="simulated")).notes
