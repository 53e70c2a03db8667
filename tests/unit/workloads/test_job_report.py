"""What a job reports: pace, CPU clock, task, pinning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from foundation.errors import OutputError, UsageError
from foundation.files import write_whole
from workloads.task.job_report import JobReport, check_writable, publish
from workloads.task.process_clock import age_from_stat, process_start, run_queue_delay_s
from workloads.task.slurm_task import Pin, apply_pin, choose_pin, parse_job_cores, slurm_task

REPORT = JobReport(
    app="eiba", kernel="smoother", state="completed", start_ms=1, end_ms=2, nodes=1, tasks=1,
    busy_s=0.12345678, residual=1e-300,
)  # fmt: skip


def test_line_is_one_json_object_with_null_for_the_unknown() -> None:
    line = REPORT.line()
    assert line.endswith("}\n")
    assert line.count("\n") == 1
    record = json.loads(line)
    assert (record["busy_s"], record["residual"]) == (0.123457, 1e-300)
    assert record["idle_s"] is None


def test_published_report_is_printed_and_filed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(REPORT, tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text() == capsys.readouterr().out == REPORT.line()
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_file_that_cannot_be_replaced_stays_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*report\.json"):
        write_whole(tmp_path / "report.json", "text", 0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk_on_standard_output_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - unbuffered semantics of the device matter
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(OutputError, match="No space left"):
            publish(REPORT, None)
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


@pytest.mark.parametrize("name", ["missing/report.json", "."])
def test_report_file_is_refused_before_the_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError):
        check_writable(tmp_path / name)


def test_no_report_file_is_fine() -> None:
    check_writable(None)


STAT = b"42 (a) b (c) S " + " ".join(str(field) for field in range(4, 22)).encode() + b" 1000 0 0"


def test_start_is_the_field_after_whatever_the_name_holds() -> None:
    assert age_from_stat(STAT, ticks_per_s=100, boottime_s=12.5) == pytest.approx(2.49)


def test_age_is_never_negative() -> None:
    assert age_from_stat(STAT, ticks_per_s=100, boottime_s=10.005) == 0.0


def test_line_that_is_no_stat_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line"):
        age_from_stat(b"42 (a) S 1", 100, 1.0)


def test_this_process_began_when_others_say_it_did() -> None:
    began = process_start()
    assert began.epoch_ms == pytest.approx(psutil.Process(os.getpid()).create_time() * 1000, abs=1100)
    assert began.monotonic_s < time.monotonic()


def test_run_queue_delay_only_grows() -> None:
    assert 0.0 <= run_queue_delay_s() <= run_queue_delay_s()


def test_outside_slurm_a_task_is_alone() -> None:
    task = slurm_task({})
    assert (task.identity, task.node_index, task.nodes, task.local_index) == (None, 0, 1, 0)
    assert (task.tasks, task.node_cpus) == (None, None)


def test_step_reports_its_place() -> None:
    task = slurm_task(
        {
            "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "SLURM_RESTART_COUNT": "1",
            "SLURM_NNODES": "4", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_NODEID": "1", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n7",
            "SLURM_CPUS_ON_NODE": "6",
        }
    )  # fmt: skip
    assert (task.identity, task.node_name) == ("12.3.1", "n7")
    # The step's nodes count, not those of the job around it.
    assert (task.node_index, task.nodes, task.tasks, task.node_cpus) == (1, 2, 2, 6)


@pytest.mark.parametrize(
    ("text", "node", "cpus"), [("4", 0, 4), ("4(x2),2", 1, 4), ("4(x2),2", 2, 2), ("2,8(x3)", 3, 8)]
)
def test_cpus_of_each_node_are_read_from_the_folded_list(text: str, node: int, cpus: int) -> None:
    environment = {"SLURM_JOB_CPUS_PER_NODE": text, "SLURM_NNODES": "4", "SLURM_NODEID": str(node)}
    assert slurm_task(environment).node_cpus == cpus


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_NNODES": "two"},
        {"SLURM_NODEID": "-1"},
        {"SLURM_NNODES": "2", "SLURM_NODEID": "2"},
        {"SLURM_JOB_CPUS_PER_NODE": "4x2"},
    ],
)
def test_variables_that_slurm_would_not_write_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="SLURM_"):
        slurm_task(environment)


CORES = {"OSUB_PIN": "1", "OSUB_JOB_CORES": "n1:0,2;n2:0-1,3"}


def test_job_cores_are_lists_and_ranges_by_node() -> None:
    assert parse_job_cores("n1:0,2;n2:0-3,6") == {"n1": (0, 2), "n2": (0, 1, 2, 3, 6)}


@pytest.mark.parametrize(
    "text", ["n1", ":0", "n1:", "n1:0,,1", "n1:3-1", "n1:0;n1:1", "n1:x", "n1:0-9999999"]
)
def test_malformed_job_cores_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_job_cores(text)


@pytest.mark.parametrize(
    ("node", "index", "cpu"), [("n1", 0, 8), ("n1", 1, 12), ("n2", 0, 8), ("n2", 1, 9), ("n2", 2, 14)]
)
def test_core_ids_are_places_in_the_sorted_cpus_of_the_node(node: str, index: int, cpu: int) -> None:
    assert choose_pin(CORES, node, index, {14, 8, 12, 9}) == Pin(cpu=cpu)


@pytest.mark.parametrize(
    "environment", [{}, {"OSUB_JOB_CORES": "n1:0"}, {"OSUB_PIN": "1"}, CORES | {"OSUB_PIN": "0"}]
)
def test_nothing_is_pinned_unasked(environment: dict[str, str]) -> None:
    assert choose_pin(environment, "n1", 0, {0, 1, 2}) == Pin()


@pytest.mark.parametrize(
    ("environment", "node", "index", "reason"),
    [
        (CORES, "n3", 0, "does not name node n3"),
        (CORES, None, 0, "does not name node"),
        (CORES, "n1", 2, "none for task 2"),
        (CORES, "n2", 2, "only 2 CPUs are allowed"),
        ({"OSUB_PIN": "1", "OSUB_JOB_CORES": "rubbish"}, "n1", 0, "'rubbish' is not of the form"),
    ],
)
def test_what_cannot_be_pinned_stays_free_and_says_why(
    environment: dict[str, str], node: str | None, index: int, reason: str
) -> None:
    pin = choose_pin(environment, node, index, {4, 5})
    assert pin.cpu is None
    assert pin.warning is not None
    assert reason in pin.warning


def test_pinned_process_runs_on_its_cpu_alone() -> None:
    cpu = max(os.sched_getaffinity(0))
    script = (
        "import os; from workloads.task.slurm_task import Pin, apply_pin; "
        f"print(apply_pin(Pin(cpu={cpu})).cpu, sorted(os.sched_getaffinity(0)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{cpu} [{cpu}]\n"


def test_cpu_that_the_host_has_not_is_a_warning() -> None:
    applied = apply_pin(Pin(cpu=1_000_000))
    assert applied.cpu is None
    assert applied.warning is not None
    assert "CPU 1000000" in applied.warning
