from __future__ import annotations

import pytest

from foundation.errors import UsageError
from workloads.task.slurm_task import slurm_task


def test_outside_slurm_a_task_is_alone() -> None:
    task = slurm_task({})
    assert (task.identity, task.node_index, task.nodes, task.local_index) == (None, 0, 1, 0)
    assert (task.tasks, task.node_cpus) == (None, None)


def test_step_reports_its_place() -> None:
    task = slurm_task(
        {
            "SLURM_JOB_ID": "12",
            "SLURM_STEP_ID": "3",
            "SLURM_RESTART_COUNT": "1",
            "SLURM_NNODES": "4",
            "SLURM_STEP_NUM_NODES": "2",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_NODEID": "1",
            "SLURM_LOCALID": "0",
            "SLURMD_NODENAME": "n7",
            "SLURM_CPUS_ON_NODE": "6",
        }
    )
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
