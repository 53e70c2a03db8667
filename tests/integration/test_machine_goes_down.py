"""The machine goes down while a job is frozen, in order and by losing its power: all comes back by itself.

Controller, agent and Slurm are on one machine, as services that start with it; what they keep is on a disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.fixtures.machine.slurm import SCOPE, UNITS_STATE, MachineCluster, task_of
from tests.fixtures.machine.started import cluster_of_module

AGAIN_S = 420.0  # slurm lets a job that it puts back wait for two minutes
SLOW_S = 60.0

pytestmark = [pytest.mark.long, pytest.mark.slurm, pytest.mark.timeout(2400)]


def prepare(cluster: MachineCluster) -> None:
    cluster.install_units()
    cluster.start_at_boot()


cluster = cluster_of_module(prepare)


def set_freeze_files(cluster: MachineCluster) -> list[str]:
    """Return the freeze files that are set."""
    found = cluster.machine.run(f"find {SCOPE} -name cgroup.freeze -exec grep -lx 1 {{}} + 2>/dev/null")
    return found.text.split()


def is_again(state: str) -> bool:
    """Whether a job waits or runs once more."""
    return any(word in state for word in ("=PENDING", "=RUNNING", "=REQUEUED"))


def goes_down_and_comes_back(cluster: MachineCluster, go_down: Callable[[], None], weight: str) -> None:
    machine = cluster.machine
    cluster.order("weight", "partition", "main", weight)
    keys = machine.must("sha256sum /etc/gangd/keys/*.key* /etc/gangd/keys/agents/*")
    boot = machine.must("cat /proc/sys/kernel/random/boot_id")
    jobs = [cluster.submit(name) for name in ("first", "second")]
    try:
        cluster.wait_held()
        # The order must be on the disk before the power goes: the controller saves every ten seconds.
        machine.until(
            f"grep -q '\"weight\":{weight}' {UNITS_STATE}/controller.json", SLOW_S, "the order is kept"
        )
        machine.must("sync")
        cluster.wait_held()
        go_down()
        assert machine.must("cat /proc/sys/kernel/random/boot_id") != boot
        assert set_freeze_files(cluster) == []
        cluster.wait_up()
        assert machine.must("sha256sum /etc/gangd/keys/*.key* /etc/gangd/keys/agents/*") == keys
        machine.until(
            f"grep -q '\"weight\":{weight}' {UNITS_STATE}/status.json", SLOW_S, "the order is in force"
        )
        # What ran is put back or ended: nothing is taken for running of which no process is left. Slurm
        # sees that when a node registers, of jobs that are older than its BatchStartTimeout.
        machine.must("sleep 25; systemctl restart slurmd", 120)
        for job in jobs:
            machine.until(
                f"! squeue -h -t R -j {job} -o %i | grep -q . || grep -q . {task_of(job)}/cgroup.procs",
                AGAIN_S,
                f"job {job} runs indeed, or not any more",
            )
        states = [machine.must(f"scontrol show job {job} | grep -o 'JobState=.*'").strip() for job in jobs]
        print(f"after that: {states}")
        over = [job for job, state in zip(jobs, states, strict=True) if not is_again(state)]
        jobs = [job for job in jobs if job not in over] + [cluster.submit(f"after-{job}") for job in over]
        for job in jobs:
            machine.until(f"grep -q . {task_of(job)}/cgroup.procs", AGAIN_S, f"job {job} computes again")
        # They take turns as before, and each gets on.
        cluster.wait_held()
        before_s = [cluster.cpu_s(job) for job in jobs]
        deadline_s = time.monotonic() + SLOW_S
        while any(cluster.cpu_s(job) <= spent for job, spent in zip(jobs, before_s, strict=True)):
            assert time.monotonic() < deadline_s, "a job is suspended"
            machine.must("sleep 1")
        machine.must("systemctl is-active gangd gang-agent")
    finally:
        print(cluster.logs())
        cluster.cancel(*jobs)


def test_a_restart_leaves_nothing_frozen_and_all_starts_by_itself(cluster: MachineCluster) -> None:
    goes_down_and_comes_back(cluster, cluster.machine.restart, "1.25")


def test_a_loss_of_power_leaves_nothing_frozen_and_all_starts_by_itself(cluster: MachineCluster) -> None:
    goes_down_and_comes_back(cluster, cluster.machine.lose_power, "1.75")
