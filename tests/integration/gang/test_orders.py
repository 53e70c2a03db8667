"""What operators order while gangd runs, on a real Slurm: pause, drain, weight; over a crash of gangd too."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from deploy.local.gang import status_folder
from foundation.slurm import SlurmJobState
from tests.fixtures.exchange import osub as called_osub
from tests.fixtures.looks import until
from tests.integration.gang.frozen import processes_of
from tests.integration.gang.stage import SPIN, TURN_S, Stage

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]


def osub(stage: Stage, *words: str, code: int = 0) -> str:
    """Call ``osub gang`` on the cluster and return what it says."""
    said = called_osub("gang", *words, "--gangd", status_folder(stage.layout))
    assert said.code == code, said.err
    return said.out if code == 0 else said.err


@pytest.fixture
def ordered(stage: Stage) -> Iterator[Stage]:
    """The shared cluster; afterwards no order is in force."""
    yield stage
    for order in json.loads(osub(stage, "status", "--json"))["orders"]:
        kind, _, name = order["target"].partition(" ")
        words = ("--all",) if kind == "everything" else (f"--{kind}", name)
        undo = ("resume", *words) if order["weight"] is None else ("weight", "--reset", *words)
        osub(stage, *undo)


def tasks(stage: Stage, *jobs: int) -> list[int]:
    return [pid for job in jobs for pid in processes_of(job, stage.job(job).nodes[0])]


def test_a_paused_node_lets_all_its_jobs_run_over_a_crash_of_the_controller(ordered: Stage) -> None:
    stage, node = ordered, ordered.nodes[0]
    one, two = stage.start(SPIN, node), stage.start(SPIN, node)
    for job in (one, two):
        stage.wait_frozen(*tasks(stage, job))
    output = osub(stage, "pause", "--node", node)
    assert f"node {node}: paused" in output
    for job in (one, two):
        stage.wait_state(job, "free")
    stage.wait_thawed(*tasks(stage, one, two))
    killed = stage.status().controller
    os.kill(stage.daemon("gangd").pid, signal.SIGKILL)
    until(lambda: stage.status().controller != killed, 60, "another controller serves")
    until(lambda: [order.jobs for order in stage.status().orders] == [2], 60, "the order is in force")
    for job in (one, two):
        stage.wait_state(job, "free")
    status = json.loads(osub(stage, "status", "--json"))
    assert [(order["what"], order["target"], order["jobs"]) for order in status["orders"]] == [
        ("pause", f"node {node}", 2)
    ]
    assert set(status["free_jobs"].values()) == {f"node {node} is paused"}
    assert f"node {node} is paused: 2 jobs run freely" in osub(stage, "status")
    osub(stage, "resume", "-w", node)
    for job in (one, two):
        stage.wait_frozen(*tasks(stage, job))


def test_a_drained_partition_takes_no_new_job_into_turns(ordered: Stage) -> None:
    stage, node = ordered, ordered.nodes[0]
    old = stage.start(SPIN, node)
    before_s = time.time()
    until(lambda: time.time() > before_s + 1, 60, "the next second")
    osub(stage, "drain", "--partition", str(stage.job(old).partition))
    until(lambda: time.time() > before_s + 3, 60, "the next second")
    new = stage.start(SPIN, node)
    stage.wait_state(new, "free")
    row = next(one for one in stage.status().orders if one.what == "drain")
    assert (row.jobs, row.left) == (1, 1)
    assert stage.state(old) is SlurmJobState.RUNNING
    osub(stage, "resume", "--partition", str(stage.job(old).partition))
    for job in (old, new):
        stage.wait_frozen(*tasks(stage, job))


def test_a_weight_ordered_is_the_share_that_a_job_gets(ordered: Stage) -> None:
    stage, node = ordered, ordered.nodes[0]
    stage.set_quantum(250)
    light, heavy = stage.start(SPIN, node), stage.start(SPIN, node)
    for job in (light, heavy):
        stage.wait_frozen(*tasks(stage, job))
    osub(stage, "weight", "3", "--job", str(heavy))
    until(
        lambda: (one := stage.job_status(heavy)) is not None and one.weight == 3, TURN_S, "the weight counts"
    )
    first = stage.status().slice + 8
    rows = stage.rows(light, heavy, past=first + 40)
    runs = {
        job: sum(row.role == "run" for row in rows if row.job == job and row.slice >= first)
        for job in (light, heavy)
    }
    assert runs[heavy] / (runs[heavy] + runs[light]) == pytest.approx(0.75, abs=0.06)


def test_what_cannot_be_is_refused_in_a_line(ordered: Stage) -> None:
    impossible: dict[tuple[str, ...], str] = {
        ("pause", "--node", "nowhere"): "Slurm has no node nowhere",
        ("pause", "--job", "99999"): "Slurm has no job 99999",
        ("pause", "--partition", "mian"): "Slurm has no partition mian",
        ("drain", "--job", "1"): "drain keeps new jobs",
    }
    for words, complaint in impossible.items():
        assert complaint in osub(ordered, *words, code=1)
    wrong: dict[tuple[str, ...], str] = {
        ("pause",): "name what it is about",
        ("pause", "--node", "n[1-"): "--node n[1-",
        ("weight", "--job", "1"): "give a weight, or --reset",
        ("weight", "0", "--job", "1"): "1/1024 to 1024",
        ("pause", "--all", "--job", "1"): "--all is everything",
    }
    for words, complaint in wrong.items():
        assert complaint in osub(ordered, *words, code=2)
