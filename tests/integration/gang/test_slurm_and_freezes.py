"""Slurm goes on managing jobs that gangd freezes: questions, suspension, signals, cancellation, steps."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from foundation.slurm import SlurmJobState
from tests.fixtures.leftovers import node_cgroups
from tests.fixtures.looks import until
from tests.integration.gang.frozen import V1, cpu_s, is_frozen, processes_of
from tests.integration.gang.stage import SPIN, Stage

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

FREEZE_A_PART = """\
step=/sys/fs/cgroup/freezer$(sed -n 's/^[0-9]*:freezer://p' /proc/self/cgroup)
mkdir "$step/inner"
sleep 1000 & echo $! >"$step/inner/cgroup.procs"
echo FROZEN >"$step/inner/freezer.state\""""
RUN_S = 0.7  # how long a job runs before it is cancelled: beyond its launch, within many slices


def pair(stage: Stage, body: str = SPIN) -> tuple[int, int, list[int], list[int]]:
    """Start two jobs on the first node's core; returns them and their processes."""
    node = stage.nodes[0]
    one, two = stage.start(body, node), stage.start(SPIN, node)
    stage.wait_state(one, "busy")
    stage.wait_state(two, "busy")
    return one, two, processes_of(one, node), processes_of(two, node)


def test_slurm_answers_about_a_job_that_is_frozen(stage: Stage) -> None:
    stage.set_quantum(1000)
    job, _, pids, _ = pair(stage)
    for words in (("scontrol", "listpids", str(job), stage.nodes[0]), ("sstat", "-n", "-P", "-a", str(job))):
        answered_frozen = False
        deadline = time.monotonic() + 60
        while not answered_frozen:
            assert time.monotonic() < deadline, f"{words} never began and ended in one freeze"
            stage.wait_frozen(*pids)
            done = stage.run(*words)
            assert done.returncode == 0, done.stderr
            assert done.stdout.strip()
            answered_frozen = all(is_frozen(pid) for pid in pids)


def test_job_suspended_while_it_is_held_stays_frozen_until_it_is_resumed(stage: Stage) -> None:
    stage.set_quantum(250)
    job, _, pids, other_pids = pair(stage)
    stage.wait_frozen(*pids)
    assert stage.run("scontrol", "suspend", str(job)).returncode == 0
    stage.wait_state(job, "foreign")
    stage.wait_frozen(*pids)
    used, begin = cpu_s(pids), cpu_s(other_pids)
    until(lambda: cpu_s(other_pids) > begin + 0.3, 60, "the other job has had more than two slices")
    assert all(is_frozen(pid) for pid in pids)
    assert cpu_s(pids) == used
    assert stage.state(job) is SlurmJobState.SUSPENDED
    assert stage.run("scontrol", "resume", str(job)).returncode == 0
    until(lambda: cpu_s(pids) > used, 60, "the resumed job runs")


@pytest.mark.parametrize("how", [("--full",), ()], ids=["script", "steps"])
def test_job_stopped_while_it_is_held_goes_on_once_it_is_continued(
    stage: Stage, how: tuple[str, ...]
) -> None:
    """`scancel --signal=STOP` stops a job's steps through the freezer, with --full its script by a signal."""
    stage.set_quantum(250)
    node = stage.nodes[0]
    job, _, pids, other_pids = pair(stage, SPIN if how else f"srun sh -c '{SPIN}'")
    stage.wait_frozen(*pids)
    assert stage.run("scancel", "--signal=STOP", *how, str(job)).returncode == 0
    until(lambda: stage.state(job) is SlurmJobState.STOPPED, 60, f"job {job} is stopped")
    begin = cpu_s(other_pids)
    until(lambda: cpu_s(other_pids) > begin + 0.6, 60, "the other job has had several slices")
    used, begin = cpu_s(pids), cpu_s(other_pids)
    until(lambda: cpu_s(other_pids) > begin + 0.3, 60, "the other job has had more")
    assert cpu_s(pids) <= used + 0.02
    assert stage.run("scancel", "--signal=CONT", *how, str(job)).returncode == 0
    until(lambda: cpu_s(pids) > used + 0.1, 60, "the continued job runs")
    stage.wait_thawed(*processes_of(job, node))


def test_jobs_cancelled_at_short_slices_end_and_no_node_is_drained(stage: Stage) -> None:
    stage.set_quantum(50)
    obstinate = "trap '' TERM; " + SPIN
    left = [stage.submit(SPIN, node) for node in stage.nodes * 9]
    left += [stage.submit(obstinate, node) for node in stage.nodes]
    running: dict[int, float] = {}
    deadline = time.monotonic() + 120
    while left:
        assert time.monotonic() < deadline, f"jobs {left} were not cancelled and gone"
        states = {job.job_id: job.state for job in stage.client.jobs().jobs}
        now = time.monotonic()
        for job in left:
            if states[job] is SlurmJobState.RUNNING:
                running.setdefault(job, now)
        stage.client.cancel(
            job
            for job in left
            if job in running and states[job] is SlurmJobState.RUNNING and now > running[job] + 0.7
        )
        left = [job for job in left if not states[job].is_over]
    assert stage.run("sinfo", "-R", "-h").stdout == ""


@pytest.mark.skipif(not (V1 / "cgroup.procs").exists(), reason="needs a cgroup v1 freezer hierarchy")
def test_job_that_froze_a_part_of_itself_ends_although_held_and_a_fault_says_what_does_not(
    stage: Stage,
) -> None:
    """On cgroup v1 SIGKILL does not reach what is frozen: that part waits for an operator."""
    stage.set_quantum(250)
    own, spinner, pids, _ = pair(stage, f"{FREEZE_A_PART}; {SPIN}")
    node = stage.nodes[0]
    inner = next(path for top in node_cgroups([node]) for path in top.rglob(f"job_{own}/step_batch/inner"))
    part = [int(pid) for pid in (inner / "cgroup.procs").read_text().split()]
    rest = [pid for pid in pids if pid not in part]
    assert len(part) == 1
    assert rest

    def is_reported() -> bool:
        alarms = [one for one in stage.status().alarms if one.subject.startswith("nested_freeze ")]
        return any((one.job, tuple(one.nodes)) == (own, (node,)) for one in alarms)

    until(is_reported, 60, "a fault names the job and its node")
    stage.wait_thawed(*rest)
    assert is_frozen(part[0])
    stage.wait_frozen(*rest)
    stage.client.cancel([own])
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in rest), 60, "the rest of the job is gone")
    assert is_frozen(part[0])
    assert is_reported()
    assert stage.finish(own, within_s=60) == [SlurmJobState.CANCELLED]
    os.kill(part[0], signal.SIGKILL)  # as an operator, whom the fault says where to thaw it
    (inner / "freezer.state").write_text("THAWED")
    until(lambda: not Path(f"/proc/{part[0]}").exists(), 60, "the part is gone")
    assert stage.state(spinner) is SlurmJobState.RUNNING


def test_steps_that_end_while_their_script_is_frozen_are_not_lost(stage: Stage) -> None:
    stage.set_quantum(1000)
    node = stage.nodes[0]
    stepper = "for i in 1 2 3 4; do srun -n1 sh -c 'sleep 0.3' || exit 9; " + "i=0; "
    stepper += "while [ $i -lt 200000 ]; do i=$((i+1)); done; done"
    job = stage.start(stepper, node)
    rival = stage.start(SPIN, node)
    assert stage.finish(job, within_s=90) == [SlurmJobState.COMPLETED]
    assert stage.state(rival) is SlurmJobState.RUNNING
