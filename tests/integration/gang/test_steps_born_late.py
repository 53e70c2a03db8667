"""Processes that come while their job is held: new steps, adopted processes, storms of forks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.leftovers import node_cgroups
from tests.fixtures.looks import until
from tests.fixtures.tier import choose
from tests.integration.gang.frozen import cpu_s, is_frozen, processes_of
from tests.integration.gang.stage import GENTLY, SPIN, Stage

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

OVERLAPS = 2
STEPS_KILLED = choose(1, 2, 5)


def test_step_started_in_a_held_job_is_held_soon(stage: Stage) -> None:
    stage.set_quantum(1000)
    node = stage.nodes[0]
    job, rival = stage.start(SPIN, node), stage.start(SPIN, node)
    for each in (job, rival):
        stage.wait_state(each, "busy")
    script = processes_of(job, node)
    step = ("srun", f"--jobid={job}", "--overlap", "-n1", "sh", "-c", SPIN)
    environment = dict(os.environ) | {"SLURM_CONF": str(stage.layout.conf)}
    steps: list[subprocess.Popen[bytes]] = []
    try:
        for count in range(1, OVERLAPS + 1):
            stage.wait_thawed(*script)
            stage.wait_frozen(*script)
            known = len(processes_of(job, node))
            steps.append(subprocess.Popen(step, env=environment, stderr=subprocess.DEVNULL))
            until(lambda known=known: len(processes_of(job, node)) > known, 60, f"step {count} runs")  # type: ignore[misc]
        everything = processes_of(job, node)
        assert len(everything) >= len(script) + OVERLAPS
        stage.wait_thawed(*everything)
        stage.wait_frozen(*everything)
        used = cpu_s(everything)
        if is_frozen(everything[0]):
            assert cpu_s(everything) <= used + 0.1, "a frozen job uses nothing"
    finally:
        for client in steps:
            client.kill()
            client.wait()


def test_step_that_slurm_kills_while_it_is_held_leaves_its_job_to_be_held(stage: Stage) -> None:
    stage.set_quantum(1000)
    node = stage.nodes[0]
    job, rival = stage.start(SPIN, node), stage.start(SPIN, node)
    for each in (job, rival):
        stage.wait_state(each, "busy")
    script = processes_of(job, node)
    step = ("srun", f"--jobid={job}", "--overlap", "-n1", "sleep", "1000")
    environment = dict(os.environ) | {"SLURM_CONF": str(stage.layout.conf)}
    for count in range(STEPS_KILLED):
        client = subprocess.Popen(step, env=environment, stderr=subprocess.DEVNULL)
        try:
            until(lambda: len(processes_of(job, node)) > len(script), 60, "the step runs")
            stage.wait_frozen((set(processes_of(job, node)) - set(script)).pop())
            killed = stage.run("scancel", f"{job}.{count}")
            assert killed.returncode == 0, killed.stderr
            until(lambda: len(processes_of(job, node)) == len(script), 60, "the step is gone")
        finally:
            client.kill()
            client.wait()
        for _ in range(2):
            stage.wait_thawed(*script)
            stage.wait_frozen(*script)


@pytest.fixture
def spinner() -> Iterator[int]:
    process = subprocess.Popen(["sh", "-c", SPIN], start_new_session=True)
    yield process.pid
    process.kill()
    process.wait()


def adopt(job: int, node: str, pid: int) -> None:
    """Put a process into a job's external step, as pam_slurm_adopt does with a login."""
    folders = [path for top in node_cgroups([node]) for path in top.rglob(f"job_{job}/step_extern")]
    v1 = [path for path in folders if (path / "freezer.state").exists()]
    v2 = [task for path in folders for task in path.glob("user/task_*")]
    if not (v1 or v2):
        pytest.skip("this host has no cgroup that freezes: nothing to adopt a process into")
    for path in v1 or v2[:1]:
        (path / "cgroup.procs").write_text(str(pid))


def test_process_adopted_into_the_external_step_is_held_with_its_job(stage: Stage, spinner: int) -> None:
    stage.set_quantum(250)
    node = stage.nodes[0]
    job = stage.start(SPIN, node)
    adopt(job, node, spinner)
    stage.start(SPIN, node)
    stage.wait_state(job, "busy")
    script = processes_of(job, node)
    stage.wait_frozen(spinner, *script)
    stage.wait_thawed(spinner, *script)


def test_storm_of_forks_stays_stopped_or_is_reported_and_never_stays_frozen(
    stage: Stage, tmp_path: Path
) -> None:
    stage.set_quantum(250)
    node, progress, name = stage.nodes[0], tmp_path / "progress", tmp_path / "pid"
    loop = f"(while :; do /bin/true; (:); echo >> {progress}; done)"
    storm = f"{GENTLY}; echo $$ > {name}; for i in 1 2 3; do {loop} & done; wait"
    job, rival = stage.start(storm, node), stage.start(SPIN, node)
    for each in (job, rival):
        stage.wait_state(each, "busy")
    script = int(name.read_text())  # not the lowest number of the job: a storm's numbers wrap around

    def stood_still_or_reported() -> bool:
        faults = stage.node_status(node).faults
        return is_frozen(script) or bool(faults.keys() & {"freeze_retried", "freeze_failed"})

    until(stood_still_or_reported, 60, "the storm is frozen, or it is reported that it does not freeze")
    for _ in range(5):
        size = progress.stat().st_size
        until(lambda size=size: progress.stat().st_size > size, 60, "the storm goes on")  # type: ignore[misc]
        stage.wait_thawed(script)
