"""Job folders of other names, under a real kernel and a real agent: found, or reported, and never missed.

Slurm 26.05 names the folder of a job by its SLUID. This machine's Slurm does not, so folders of that shape
are made next to its own, in the scope that carries the node's name (Debian's multiple-slurmd).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.fixtures.machine.slurm import SCOPE, MachineCluster, task_of
from tests.fixtures.machine.started import cluster_of_module, two_jobs

SLOW_S = 180.0  # what an agent that looks at all processes twice may take there
SLUID = "sEKNKTV3WPV500"

pytestmark = [pytest.mark.long, pytest.mark.slurm, pytest.mark.timeout(1800)]
cluster = cluster_of_module()
jobs = two_jobs()


@dataclass(frozen=True)
class LookAlike:
    """A folder of a job that Slurm has not made: its task's folder, below the cgroup mount."""

    task: str

    @property
    def freeze(self) -> str:
        return f"{self.task}/cgroup.freeze"


@contextmanager
def look_alike(cluster: MachineCluster, folder: str, step: str, title: str = "") -> Iterator[LookAlike]:
    """Make a folder with a step, for as long as the context lasts."""
    path = f"{SCOPE}/{folder}"
    task = cluster.inside("look_alike", path, step, f"'{title}'" if title else "").strip()
    try:
        yield LookAlike(task)
    finally:
        cluster.machine.must(f"echo 1 >{path}/cgroup.kill")
        cluster.machine.until(f"find {path} -depth -type d -exec rmdir {{}} +", SLOW_S, f"{path} is gone")


def wait_for_fault(cluster: MachineCluster, kind: str) -> None:
    """Wait until the controller knows of a fault of the agent."""
    cluster.machine.until(
        f"grep -q '\"{kind}\":' /var/lib/gangd/state/status.json", SLOW_S, f"a fault {kind} is reported"
    )


def job_folders(cluster: MachineCluster) -> dict[str, str]:
    """Return what `osub doctor` says of job folders."""
    output = cluster.run(f"{cluster.python} -m osub.command doctor --json || true")
    finding: dict[str, str] = json.loads(output[output.index("{") :])["job folders"]
    return finding


def test_a_step_in_a_folder_named_by_sluid_is_held_and_let_run_with_its_job(
    cluster: MachineCluster, jobs: tuple[int, int]
) -> None:
    own = f"{task_of(jobs[0])}/cgroup.freeze"
    with look_alike(cluster, SLUID, "7", f"slurmstepd: [{jobs[0]}.7]") as other:
        frozen, held = cluster.strike(other.freeze, kill=False)
        assert frozen >= {own, other.freeze}
        assert frozen <= held
        cluster.machine.until(f"grep -qx 0 {other.freeze}", SLOW_S, "it has its turn, too")
        for _ in range(5):
            looks = cluster.watch([own, other.freeze], 5.0)
            if {(True, True), (False, False)} <= set(looks):
                break
        alike = sum(one is two for one, two in looks)
        assert {(True, True), (False, False)} <= set(looks)
        assert alike >= 0.9 * len(looks), "the two steps of a job are not suspended and resumed together"
        found = job_folders(cluster)
        assert found["here"] == "yes"
        assert "1 named by SLUID" in found["found"]


def test_a_folder_that_no_rule_knows_is_reported_by_agent_and_doctor(
    cluster: MachineCluster, jobs: tuple[int, int]
) -> None:
    with look_alike(cluster, f"x_{jobs[0]}", "0"):
        wait_for_fault(cluster, "unknown_folder")
        found = job_folders(cluster)
        assert found["here"] == "no"
        assert f"x_{jobs[0]}" in found["found"]
        assert "CgroupJobIdPaths=yes" in found["advice"]


def test_a_sluid_of_which_no_slurmstepd_reports_the_job_is_reported(
    cluster: MachineCluster, jobs: tuple[int, int]
) -> None:
    with look_alike(cluster, SLUID, "0"):
        found = job_folders(cluster)
        assert found["here"] == "no"
        assert "no slurmstepd tells which job it is" in found["found"]


def test_a_job_that_runs_and_has_no_step_to_be_found_is_reported(cluster: MachineCluster) -> None:
    """Its slurmstepd is there, its tasks are in a folder that is unknown: not "nothing to do".

    Slurm's own folder of the task goes, for while it is there, empty or not, it is a step's.
    """
    machine = cluster.machine
    machine.must("systemctl stop gang-agent")
    two = cluster.submit("first"), cluster.submit("second")
    try:
        with look_alike(cluster, "x_moved", "0") as other:
            own = task_of(two[0])
            machine.must(
                f"for pid in $(cat {own}/cgroup.procs); do echo $pid >{other.task}/cgroup.procs; done"
            )
            machine.must(f"rmdir {own}")
            cluster.start_gang()
            wait_for_fault(cluster, "no_step")
            log = machine.must("journalctl -q --no-pager -u gang-agent")
            assert any("no_step" in line and f'"job": {two[0]}' in line for line in log.splitlines()), log
            assert machine.must(f"cat {other.freeze}").strip() == "0"
            assert job_folders(cluster)["here"] == "no"
    finally:
        print(cluster.logs())
        cluster.cancel(*two)
