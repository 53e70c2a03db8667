"""Latencies of a real cluster, in a simulation and measured on a run; C_o measured on a run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from foundation.errors import InputError, UsageError
from foundation.records import ALLOCATIONS, AllocationRecord, GangSettings, Placement, load_run
from foundation.records.table_files import frame_of
from osub import simulate
from simulator.fit import Decision, order_of
from simulator.fit.measured_run import (
    Latencies,
    SharedWork,
    latencies_of,
    measure_latencies,
    measure_overhead,
    overheads_of,
    read_latencies,
    slowdowns_by_kind,
)
from tests.fixtures.real_runs import Row, real_run

ONE_A_CORE: list[Row] = [
    ("batch", 0, 0.2, 1.2, 12.2, 10, "0"),  # starts 1 s after its submission, launches in 1 s
    ("batch", 5, 5.2, 14.2, 37.2, 20, "0-1"),  # waits for the first: 2 s after its end; launches in 3 s
    ("interactive", 30, 30.2, 39.2, 49.7, 10, "1"),
    ("batch", 60, 60.2, 61.2, 72.2, 10, "0"),
    ("batch", 61, 61.2, 62.2, 73.2, 10, "1"),
    ("batch", 62, 62.2, 74.2, 85.2, 10, "0"),
]
NAIVE: list[Row] = [
    ("batch", 0, 0, 0, 30, 21, "0"),  # 10 s alone, 20 s shared: 10 and 11 s of work
    ("batch", 0, 0, 10, 40, 21, "0"),
    ("batch", 90, 90, 90, 99, 9, "0"),
]


def test_latencies_are_the_medians_of_a_run_with_one_job_a_core(tmp_path: Path) -> None:
    assert measure_latencies(real_run(tmp_path / "r", ONE_A_CORE)) == Latencies(
        submission_s=0.2, scheduling_s=1.0, release_s=1.0, launch_serial_s=1.0,
        launch_parallel_s=3.0, launch_interactive_s=0.5,
    )  # fmt: skip


def test_few_starts_are_taken_together(tmp_path: Path) -> None:
    measured = measure_latencies(real_run(tmp_path / "r", ONE_A_CORE[:3]))
    assert (measured.scheduling_s, measured.release_s) == (2.0, 0.0)


def test_a_job_that_was_put_back_reports_nothing_of_how_soon_jobs_start(tmp_path: Path) -> None:
    """Without its allocations it seems to have started 180 s late."""
    late = [*ONE_A_CORE[:2], ("batch", 200.0, 200.1, 380.0, 390.0, 9.0, "0")]
    run = real_run(tmp_path / "r", late)
    place = (Placement("n1", (0,)),)
    rows = [
        AllocationRecord(job=3, from_s=202.0, to_s=210.0, placement=place, why="start"),
        AllocationRecord(job=3, from_s=380.0, to_s=390.0, placement=place, why="requeue"),
    ]
    lifecycles = replace(run, allocations=frame_of(rows, ALLOCATIONS))
    calm = real_run(tmp_path / "calm", ONE_A_CORE[:2])
    assert measure_latencies(lifecycles).scheduling_s == measure_latencies(calm).scheduling_s
    assert measure_latencies(run).scheduling_s != measure_latencies(calm).scheduling_s
    with pytest.raises(InputError, match="no job completed"):
        measure_latencies(replace(lifecycles, jobs=lifecycles.jobs.filter(trace_job=3)))


def test_latencies_cannot_be_measured_where_jobs_share_cores(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one job a core"):
        measure_latencies(real_run(tmp_path / "r", NAIVE, multiplicity=2))


def test_overhead_is_what_the_work_on_shared_cores_took(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", NAIVE, multiplicity=2)
    assert measure_overhead(run, Latencies()) == pytest.approx(10 / 11, abs=1e-3)
    assert measure_overhead(run, Latencies(launch_serial_s=1)) == pytest.approx(10 / 12, abs=1e-3)
    assert overheads_of("1.2", None).overhead == "1.2"
    assert overheads_of(str(tmp_path / "r"), None).overhead == "1.0"  # the model knows no gain
    assert overheads_of(str(tmp_path / "r"), None).by_kind is None  # all of one core


def test_what_passes_without_computing_does_not_count_as_shared(tmp_path: Path) -> None:
    """The first second of each job is idle: 10 s alone and 19 s shared are left of 30, for 20 s of work."""
    run = real_run(tmp_path / "r", NAIVE[:2], multiplicity=2)
    plain, blocked = measure_overhead(run, Latencies()), measure_overhead(run, Latencies(blocked_serial_s=1))
    assert plain == pytest.approx(10 / 11, abs=1e-3)
    assert blocked == pytest.approx((9.5 + 9.5) / (10 + 10), abs=1e-3)


def test_jobs_of_one_core_and_of_several_slow_each_other_differently() -> None:
    """A coupled job makes half of its share with another; the others lose nothing beyond the share."""
    done = [
        *[SharedWork(several=False, seconds=(10.0, 5.0), work_s=15.0)] * 20,
        *[SharedWork(several=True, seconds=(10.0, 0.0), work_s=10.0)] * 20,
        *[SharedWork(several=True, seconds=(0.0, 10.0), work_s=5.0)] * 20,
    ]
    found = slowdowns_by_kind(done, 1.3)
    assert found is not None
    (by_one, by_several), (coupled_by_one, coupled_by_coupled) = found
    assert (by_one, by_several) == pytest.approx((2, 2), abs=0.05)
    assert coupled_by_one == pytest.approx(2, abs=0.05)
    assert coupled_by_coupled == pytest.approx(4, abs=0.1)
    giving_up_the_core = [
        *[SharedWork(several=False, seconds=(0.0, 7.5), work_s=12.0)] * 20,
        *[SharedWork(several=True, seconds=(7.5, 0.0), work_s=2.5)] * 20,
    ]
    waits = slowdowns_by_kind(giving_up_the_core, 1.0)
    assert waits is not None
    assert (waits[0][1], waits[1][0]) == pytest.approx((1.25, 6), abs=0.3)
    unseen = slowdowns_by_kind(done[:21], 1.3)
    assert unseen is not None
    assert unseen[1][1] == pytest.approx(2.6, abs=1e-3)  # nothing seen: C_o for all
    assert slowdowns_by_kind(done[:20], 1.3) is None


def test_under_gangd_it_is_slices_that_cost(tmp_path: Path) -> None:
    slow: list[Row] = [("batch", 0, 0, 0, 44, 20, "0"), ("batch", 0, 0, 0, 44, 20, "0")]
    run = real_run(tmp_path / "r", slow, multiplicity=2, gang=GangSettings(kind="osub", quantum_ms=250))
    costs = overheads_of(str(run.path), None, in_slices=True)
    assert costs.overhead == "1.0"
    assert costs.by_kind is None
    assert costs.slice_cost == pytest.approx(1.1)
    with pytest.raises(InputError, match="without gang scheduling"):
        overheads_of(str(run.path), None)
    words = {"multiplicity": 2, "quantum_ms": 250.0, "overhead": str(run.path)}
    jobs = simulate(run.path, "N1C1", out=tmp_path / "s", **words).jobs
    assert jobs["end_s"].to_list() == pytest.approx([44, 44], abs=1)


def test_start_up_and_tear_down_are_measured_apart_from_steps(tmp_path: Path) -> None:
    """Start-up of 2 s of which 0.5 s computes; 0.3 s from the last step to the end."""
    run = real_run(tmp_path / "r", ONE_A_CORE)
    batch = pl.col("kind") == "batch"
    jobs = run.jobs.with_columns(
        first_step_s=pl.when(batch).then(pl.col("start_s") + 2),
        last_step_s=pl.when(batch).then(pl.col("end_s") - 0.3),
        steps_cpu_s=pl.lit(4.0),
        cpu_s=4.5 * pl.col("cores"),
    )
    found = measure_latencies(replace(run, jobs=jobs))
    assert (found.blocked_serial_s, found.blocked_parallel_s) == (1.5, 1.5)
    assert (found.ending_serial_s, found.ending_parallel_s) == (0.3, 0.3)
    assert measure_latencies(run).blocked_serial_s == 0


def test_a_job_that_waits_while_it_starts_leaves_its_core_to_others(tmp_path: Path) -> None:
    """Two jobs of 10 s on one core, of which 2 s pass without computing: 8 s each by turns."""
    rows: list[Row] = [("batch", 0, 0, 0, 20, 10, "0"), ("batch", 0, 0, 0, 20, 10, "0")]
    run = real_run(tmp_path / "r", rows, multiplicity=2)
    latencies = tmp_path / "l.json"
    latencies.write_text('{"blocked_serial_s": 1.5, "ending_serial_s": 0.5}')
    jobs = simulate(
        run.path, "N1C1", multiplicity=2, overhead=1.0, latency=latencies, out=tmp_path / "s"
    ).jobs
    assert (jobs["start_s"].to_list(), jobs["end_s"].to_list()) == ([0, 0], [18, 18])


def test_overhead_cannot_be_measured_without_sharing_or_under_gang_scheduling(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shared a core"):
        measure_overhead(real_run(tmp_path / "a", NAIVE[2:], multiplicity=2), Latencies())
    slow = [(*job[:5], job[5] / 100, job[6]) for job in NAIVE]  # all of it was done before they shared
    with pytest.raises(InputError, match="calm host"):
        measure_overhead(real_run(tmp_path / "c", slow, multiplicity=2), Latencies())
    with pytest.raises(InputError, match="without gang scheduling"):
        measure_overhead(
            real_run(tmp_path / "b", NAIVE, multiplicity=2, gang=GangSettings(kind="osub")), Latencies()
        )


@pytest.mark.parametrize("text", ["{", '{"launch_s": 1}', '{"release_s": -1}'])
def test_a_file_of_latencies_is_checked(tmp_path: Path, text: str) -> None:
    path = tmp_path / "latency.json"
    with pytest.raises(InputError, match="cannot read"):
        read_latencies(path)
    path.write_text(text)
    with pytest.raises(InputError, match="no file of latencies"):
        latencies_of(path)


@pytest.mark.slow
def test_a_simulation_with_the_latencies_of_a_run_gives_its_schedule(tmp_path: Path) -> None:
    real = real_run(tmp_path / "r", ONE_A_CORE)
    words = [
        "--system", "N1C2", "--policy", "fcfs", "--latency", str(real.path), "--out",
        str(tmp_path / "s"),
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "osub.cli.main", "simulate", str(real.path), *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OSUB_JIT": "0"},
    )
    assert done.returncode == 0, done.stderr
    simulated = load_run(tmp_path / "s")
    assert simulated.jobs["start_s"].to_list() == real.jobs["start_s"].to_list()
    assert simulated.jobs["end_s"].to_list() == real.jobs["end_s"].to_list()
    for column in ("due_s", "submitted_s"):
        assert simulated.jobs[column].to_list() == pytest.approx(real.jobs[column].to_list()), column
    assert simulated.jobs["submit_s"].to_list() == simulated.jobs["submitted_s"].to_list(), (
        "waiting begins there"
    )
    assert simulated.jobs["dedicated_s"].to_list() == real.jobs["dedicated_s"].to_list()
    assert simulated.info.options["release_s"] == 1.0


# Kind, due, submitted, start, end, dedicated; cores of the only node, which has two.
ROWS: list[Row] = [
    ("batch", 0, 0.1, 0.6, 10.6, 10, "0"),
    ("batch", 1, 1.1, 11.1, 20.0, 9, "0-1"),  # waits for the first
    ("batch", 2, 2.1, 2.5, 8.5, 6, "1"),  # overtakes the second
    ("batch", 3, 3.1, 20.7, 30.7, 10, "1"),
    ("batch", 4, 4.1, 20.6, 29.8, 9, "0"),  # of the same pass: its stamp was quicker
]
ORDER = [(1, False), (3, False), (3, True), (1, True), (2, False), (2, True), (4, False), (5, False)]


def test_the_order_of_starts_and_ends_is_read_from_a_run(tmp_path: Path) -> None:
    order = order_of(real_run(tmp_path / "r", ROWS))
    assert order == tuple(Decision(*one) for one in [*ORDER, (5, True), (4, True)])


def test_jobs_start_in_the_order_of_the_run_and_after_the_same_ends(tmp_path: Path) -> None:
    """Jobs 2 and 3 are as long as each other now: the policy alone would start job 2 behind job 4."""
    run = real_run(tmp_path / "r", ROWS)
    simulated = simulate(run.path, "N1C2", order_of=run.path, out=tmp_path / "s")
    jobs = {row["trace_job"]: row for row in simulated.jobs.to_dicts()}
    assert sorted(jobs, key=lambda job: (jobs[job]["start_s"], job)) == [1, 3, 2, 4, 5]
    assert jobs[2]["start_s"] == jobs[1]["end_s"] == 10
    assert jobs[4]["start_s"] == jobs[5]["start_s"] == jobs[2]["end_s"]
    assert (simulated.info.policy, simulated.info.options["order_of"]) == ("order-of", "real")


def test_jobs_that_the_run_has_not_started_come_last(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS)
    part = real_run(tmp_path / "part", ROWS[:1])
    jobs = simulate(run.path, "N1C2", order_of=part.path, out=tmp_path / "s").jobs.sort("start_s")
    assert jobs["trace_job"].to_list() == [1, 2, 3, 4, 5] or jobs["trace_job"][0] == 1


def test_with_slices_the_order_is_the_same(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS, multiplicity=2)
    done = simulate(run.path, "N1C2", multiplicity=2, quantum_ms=250, order_of=run.path, out=tmp_path / "s")
    starts = dict(done.jobs.select("trace_job", "start_s").iter_rows())
    assert starts[1] < starts[3] < starts[2] <= starts[4] == starts[5]


@pytest.mark.parametrize(
    "words",
    [
        {"policy": "malleable-avg"},
        {"policy": "timeshare"},
        {"queues": "mq", "interactive_nodes": 1, "system": "N2C2"},
        {"mtbf": 10.0},
    ],
)
def test_what_an_order_cannot_replace_is_refused(tmp_path: Path, words: dict[str, Any]) -> None:
    run = real_run(tmp_path / "r", ROWS)
    with pytest.raises(UsageError, match="place of a policy in one queue"):
        simulate(run.path, **{"system": "N1C2", **words}, order_of=run.path, out=tmp_path / "s")


def test_a_run_that_reports_no_order_of_these_jobs_is_refused(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS)
    simulated = simulate(run.path, "N1C2", out=tmp_path / "s")
    with pytest.raises(InputError, match="is a simulation"):
        simulate(run.path, "N1C2", order_of=simulated.path)
    other = tmp_path / "other.swf"
    other.write_text("; Version: 2.2\n77 0 -1 5 1 -1 -1 1 9 -1 1 1 1 -1 1 -1 -1 -1\n")
    with pytest.raises(InputError, match="has started none of"):
        simulate(other, "N1C2", order_of=run.path)
