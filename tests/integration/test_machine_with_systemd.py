"""Gangd on a machine with systemd and cgroup v2: Linux as a process, a Slurm of one node and one core.

What runs there is many times slower than here, and on a busy host slower still: nothing is timed but
what must end.
"""

from __future__ import annotations

import time

import pytest

from tests.fixtures.machine.slurm import HEALTH_CHECK_S, LEASE_S, SCOPE, MachineCluster, idle_file, task_of
from tests.fixtures.machine.started import cluster_of_module, two_jobs

SLOW_S = 30.0  # what a script and a few processes may take there

pytestmark = [pytest.mark.long, pytest.mark.slurm, pytest.mark.timeout(1800)]
cluster = cluster_of_module()
jobs = two_jobs(gang_again=True)
yielding = two_jobs("gangd-hold=yield", "gangd-hold=yield gangd-weight=0.5", gang_again=True)
"""Of one core each, they take turns for they differ in weight."""


def freeze_file(job: int) -> str:
    return f"{task_of(job)}/cgroup.freeze"


def take_turns(cluster: MachineCluster, files: list[str]) -> None:
    """See that of two files now the one and now the other is set, three times each."""
    looks: list[tuple[bool, ...]] = []
    for _ in range(10):  # a host that is busy with others may let the agent lose its controller now and then
        looks += cluster.watch(files, 5.0)
        turns = [look for index, look in enumerate(looks) if index == 0 or look != looks[index - 1]]
        if min(turns.count((True, False)), turns.count((False, True))) >= 3:
            break
    else:
        pytest.fail(f"the jobs took no turns: {turns}")
    assert looks.count((True, True)) <= len(looks) // 20


def test_two_jobs_take_turns(cluster: MachineCluster, jobs: tuple[int, int]) -> None:
    take_turns(cluster, [freeze_file(job) for job in jobs])


def test_two_jobs_that_yield_take_turns_and_a_crash_of_everything_leaves_none_stopped(
    cluster: MachineCluster, yielding: tuple[int, int]
) -> None:
    machine = cluster.machine
    take_turns(cluster, [idle_file(job) for job in yielding])
    for job in yielding:
        machine.must(f"grep -qx 0 {freeze_file(job)}")
    machine.must("systemctl kill -s KILL gangd gang-agent")
    before_s = [cluster.cpu_s(job) for job in yielding]
    idle = " ".join(idle_file(job) for job in yielding)
    machine.until(
        f"! grep -qx 1 {idle}", 2 * HEALTH_CHECK_S + SLOW_S, "the health check gives back the priority"
    )
    # What a job got in one tick of 10 ms while it yielded counts 341 times, and it waits for that long.
    deadline_s = time.monotonic() + 2 * SLOW_S
    while min(cluster.cpu_s(job) - before for job, before in zip(yielding, before_s, strict=True)) <= 0.1:
        assert time.monotonic() < deadline_s, "a job is suspended"
        machine.must("sleep 1")
    cluster.start_gang()


def test_task_that_comes_late_in_a_held_step_is_on_record_and_let_go(
    cluster: MachineCluster, jobs: tuple[int, int]
) -> None:
    machine, late = cluster.machine, f"{SCOPE}/job_{jobs[0]}/step_batch/user/task_9"
    cluster.wait_held()
    machine.must(
        f"nice -n 19 sh -c 'while :; do :; done' >/dev/null 2>&1 & mkdir {late}; echo $! >{late}/cgroup.procs"
    )
    frozen, held = cluster.strike(f"{late}/cgroup.freeze", kill=False)
    assert frozen >= {f"{late}/cgroup.freeze", freeze_file(jobs[0])}
    assert frozen <= held
    machine.until(f"grep -qx 0 {late}/cgroup.freeze", 60, "the late task has its turn, too")
    for _ in range(3):  # a step that begins in the off-slice is launched all the same
        machine.must(f"srun --overlap --jobid={jobs[0]} -n1 true", 60)
    machine.must("systemctl stop gang-agent")
    cluster.wait_thawed(LEASE_S + SLOW_S)
    machine.must(f"kill -9 $(cat {late}/cgroup.procs)")
    machine.until(f"rmdir {late}", 10, "the late task is gone")
    cluster.start_gang()


def test_guardian_thaws_when_the_agent_is_killed(cluster: MachineCluster, jobs: tuple[int, int]) -> None:
    cluster.wait_held()
    cluster.machine.must("systemctl kill --kill-whom=main -s KILL gang-agent")
    cluster.wait_thawed(LEASE_S + SLOW_S)
    cluster.machine.until(
        "journalctl -q --since=-2min -u gang-agent | grep -q 'guardian.*agent died'",
        SLOW_S,
        "it was the guardian",
    )
    cluster.start_gang()


def test_health_check_thaws_when_agent_guardian_and_controller_are_killed(
    cluster: MachineCluster, jobs: tuple[int, int]
) -> None:
    frozen, held = cluster.strike(freeze_file(jobs[0]), kill=True)
    assert frozen <= held
    took_s = cluster.wait_thawed(2 * HEALTH_CHECK_S + SLOW_S)
    print(f"thawed after {took_s:.1f} s; the interval is {HEALTH_CHECK_S} s")
    message = f"jobs* that agents held:.* {jobs[0]}[,;]"
    cluster.machine.until(f"grep -q '{message}' /var/log/health.log", SLOW_S, "the health check tells of it")
    cluster.start_gang()
    cluster.wait_held()
