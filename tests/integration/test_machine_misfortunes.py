"""Faults of a host with gangd: its clock is stepped, its cgroups run out.

Linux as a process with systemd and cgroup v2, a Slurm of one node and one core: nothing is timed but what
must end.
"""

from __future__ import annotations

import pytest

from tests.fixtures.machine.slurm import NODE, SCOPE, MachineCluster, task_of
from tests.fixtures.machine.started import cluster_of_module, two_jobs

pytestmark = [pytest.mark.long, pytest.mark.slurm, pytest.mark.timeout(1800)]

_UP = f"scontrol show node {NODE} | grep -Eq 'State=(IDLE|MIXED|ALLOCATED) '"
cluster = cluster_of_module()
jobs = two_jobs()


def take_turns(cluster: MachineCluster, jobs: tuple[int, ...]) -> None:
    """See that each of the jobs is held and let go, twice, and that each gets on."""
    before = [cluster.cpu_s(job) for job in jobs]
    files = [f"{task_of(job)}/cgroup.freeze" for job in jobs]
    for _ in range(2):
        for file in files:
            cluster.machine.until(f"grep -qx 1 {file}", 60, f"{file} is held")
            cluster.machine.until(f"grep -qx 0 {file}", 60, f"{file} is let go")
    for job, was in zip(jobs, before, strict=True):
        cluster.machine.until(
            f"test $(sed -n 's/usage_usec //p' {SCOPE}/job_{job}/cpu.stat) -gt {int(was * 1e6) + 200_000}",
            60,
            f"job {job} gets on",
        )


def test_jobs_take_turns_whatever_the_clock_of_the_host_is_set_to(
    cluster: MachineCluster, jobs: tuple[int, int]
) -> None:
    """gangd, agents and kernel go by the monotonic clock; Slurm takes the step for an hour that went by."""
    machine = cluster.machine
    take_turns(cluster, jobs)
    for step in ("+1 hour", "-2 hours", "+1 hour"):
        machine.must(f"date -s '{step}' >/dev/null")
        take_turns(cluster, jobs)
        if step.startswith("-"):  # slurmctld schedules nothing until the clock is where it was
            machine.must("systemctl restart slurmctld", 120)
        machine.until(_UP, 120, f"Slurm has its node after {step}")
        listed = machine.must("squeue -h -t RUNNING -o %A").split()
        assert {int(job) for job in listed} == set(jobs), f"the jobs run on after {step}"
        later = cluster.submit("later")
        take_turns(cluster, (*jobs, later))
        cluster.cancel(later)


def test_when_there_are_no_cgroups_left_jobs_that_run_take_turns_and_later_ones_are_well_again(
    cluster: MachineCluster, jobs: tuple[int, int]
) -> None:
    machine = cluster.machine
    machine.must(f"sed -n 's/nr_descendants //p' {SCOPE}/cgroup.stat >{SCOPE}/cgroup.max.descendants")
    try:
        unlucky = int(machine.must("sbatch --parsable --no-requeue -o /dev/null --wrap true"))
        machine.until(
            f"! squeue -h -t RUNNING,COMPLETING -o %A | grep -qx {unlucky}", 120, "it does not run on"
        )
        print(machine.must(f"scontrol show job {unlucky}; scontrol show node {NODE}"))
        take_turns(cluster, jobs)
    finally:
        machine.must(f"echo max >{SCOPE}/cgroup.max.descendants")
    machine.run(f"scancel {unlucky}; scontrol update nodename={NODE} state=resume")
    machine.until(_UP, 120, "the node takes jobs")
    lucky = cluster.submit("lucky")
    take_turns(cluster, (*jobs, lucky))
    cluster.cancel(lucky)
