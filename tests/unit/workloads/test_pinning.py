from __future__ import annotations

import os
import subprocess
import sys

import pytest

from workloads.task.slurm_task import Pin, apply_pin, choose_pin, parse_job_cores

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
