"""What the example of a job-submit plugin does: harmful pairs alternate, and requested memory is lowered."""

from __future__ import annotations

import getpass
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import deploy
from deploy.local import GangKind, LocalCluster, Shape
from foundation.slurm import SlurmJobState
from predictor.memory import PeakHistory, table_of
from tests.fixtures.looks import until
from tests.integration.conftest import empty_folder, end_cluster
from tests.integration.gang.stage import SPIN, Stage

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

LUA = Path(deploy.__file__).parent / "slurm" / "job_submit.lua"
PLUGINS = (
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
)
TABLE_NAME, PEAKS_NAME = "pairs.csv", "memory.json"
TABLE = """victim,opponent,e_v
lu.W,chase.2048K,0.02
chase.2048K,lu.W,0.40
lu.W,lu.W,0.01
chase.2048K,chase.2048K,0.03
"""
OPPONENT = "echo $$ >{folder}/{name}.pid; while :; do :; done"
VICTIM = """exec {python} - <<'END'
import os, pathlib, time

def ticks() -> int:
    try:
        pid = pathlib.Path("{folder}/chase.pid").read_text().strip()
        return sum(map(int, pathlib.Path("/proc", pid, "stat").read_text().split()[13:15]))
    except (OSError, ValueError):
        return 0

before = ticks()
for _ in range(100):
    now = ticks()
    until_s = time.process_time() + 0.05 * (2 if now > before else 1)
    before = now
    while time.process_time() < until_s:
        pass
END
"""  # 5 s of CPU time, and twice as much while the chase runs: harm that does not depend on the host
needs_lua = pytest.mark.skipif(
    not any(Path(folder, "job_submit_lua.so").exists() for folder in PLUGINS),
    reason="this Slurm has no job_submit/lua: install slurm-wlm-basic-plugins",
)


@pytest.fixture
def pair_stage() -> Iterator[Stage]:
    """One node of three cores, so that jobs on one node have cores of their own."""
    shape = Shape(nodes=1, cores=3, virtual=True, multiplicity=2, gang=GangKind.OSUB, quantum_ms=250)
    with empty_folder() as folder:
        cluster = LocalCluster(folder / "c")
        cluster.up(shape)
        try:
            stage = Stage(cluster, shape)
            yield stage
            # ``down`` removes what ``up`` made, and nothing else.
            lua = stage.layout.conf.with_name(LUA.name)
            for made in (lua, lua.with_name(PEAKS_NAME), stage.layout.gang / TABLE_NAME):
                made.unlink(missing_ok=True)
        finally:
            end_cluster(cluster)


def use_table(stage: Stage, text: str) -> None:
    """Have the controller read a table of pairs, through its configuration and SIGHUP."""
    (table := stage.layout.gang / TABLE_NAME).write_text(text)
    table.chmod(0o600)
    file = stage.layout.gang / "gangd.toml"
    if "pairing" not in file.read_text():
        file.write_text(f'pairing = "{table}"\npairing_threshold = 0.1\n{file.read_text()}')
    os.kill(stage.daemon("gangd").pid, signal.SIGHUP)


def take_turns(stage: Stage, chase: int, others: set[int]) -> bool:
    """Return whether in the last eight slices on record the chase ran alone, or the others together.

    On a busy host a job may look idle for a slice: it is not held then, and runs with any other.
    """
    by_slice: dict[int, dict[int, str]] = {}
    for row in stage.rows(chase, *others):
        by_slice.setdefault(row.slice, {})[row.job] = str(row.role)
    running = [
        {job for job, role in by_slice[number].items() if role == "run"}
        for number in sorted(by_slice)
        if len(by_slice[number]) == 3
    ][-8:]
    seen = [{chase}, others]
    return len(running) == 8 and all(one in seen for one in running) and all(one in running for one in seen)


@needs_lua
def test_a_dangerous_pair_takes_turns_on_a_node_and_others_do_not(pair_stage: Stage) -> None:
    stage = pair_stage
    conf = stage.layout.conf
    shutil.copyfile(LUA, conf.with_name(LUA.name))
    conf.write_text(f"{conf.read_text()}\nJobSubmitPlugins=lua\n")
    assert stage.run("scontrol", "reconfigure").returncode == 0
    (node,) = stage.nodes
    use_table(stage, TABLE)
    chase = stage.start(SPIN, node, options=("--job-name=chase-1",))
    lu, another = (stage.start(SPIN, node, options=(f"--job-name=lu_{number}",)) for number in (1, 2))
    jobs = (chase, lu, another)
    assert [stage.job(job).admin_comment for job in jobs] == [
        "gangd-app=chase.2048K",
        "gangd-app=lu.W",
        "gangd-app=lu.W",
    ]
    cores = [held.cores for job in jobs for held in stage.job(job).cores]
    assert len(set(cores)) == 3, "no two of them share a core"
    for job in jobs:
        stage.wait_state(job, "busy")
    until(lambda: take_turns(stage, chase, {lu, another}), 120, "for eight slices the chase ran alone")
    shown = {one.job: one for one in stage.status().jobs}
    assert shown[chase].cores == {node: list(stage.job(chase).cores[0].cores)}, "seats are no cores"
    assert shown[chase].hold == "freeze"

    # A table that is damaged is refused, and the one before stays in force.
    use_table(stage, "victim,opponent\n")
    until(
        lambda: any(one.kind == "configuration" and "e_v" in one.text for one in stage.status().alarms),
        30,
        "the damaged table is an alarm",
    )
    assert stage.job_status(chase) is not None

    # Once the chase is gone no job is held any more.
    stage.client.cancel([chase])
    until(lambda: stage.job_status(lu) is None, 60, "no core is shared")
    stage.clear()
    more_jobs_fit_by_predicted_memory(stage)


def more_jobs_fit_by_predicted_memory(stage: Stage) -> None:
    """Jobs use 0.4 of what they ask for, a third of the node's memory: three run at once, and then six."""
    said = stage.run("scontrol", "show", "node", "-o").stdout
    asked = int(said.split(" RealMemory=")[1].split()[0]) // 3
    asking = (f"--mem={asked}", "--ntasks=1", "--job-name=lean", "--oversubscribe")
    jobs = [stage.submit("sleep 600", options=asking) for _ in range(6)]
    until(lambda: running(stage, jobs) == 3, 60, "as many jobs run as the memory is enough for")
    assert len([job for job in jobs if stage.state(job) is SlurmJobState.PENDING]) == 3
    stage.clear()

    history = PeakHistory()
    for _ in range(history.least):
        user = getpass.getuser()
        keys = ((user, "lean", asked), (user, None, asked), (user, None, None))
        history.add(keys, 0.4 * 1024 * asked)
    lua = stage.layout.conf.with_name(LUA.name)
    (table := lua.with_name(PEAKS_NAME)).write_text(json.dumps(table_of(history), indent=1))
    lua.write_text(LUA.read_text().replace("local MEMORY = nil", f"local MEMORY = {json.dumps(str(table))}"))
    newer_s = time.time() + 5
    os.utime(lua, (newer_s, newer_s))  # Slurm reads a script again that is newer than when it read it
    jobs = [stage.submit("sleep 600", options=asking) for _ in range(6)]
    until(lambda: running(stage, jobs) == 6, 60, "twice as many run at once")
    kept = stage.submit("sleep 600", options=(*asking, "--comment=osub-memory=off"))
    listed = stage.run("squeue", "-h", "--noconvert", "-O", "JobID,MinMemory").stdout.split()
    memory = dict(zip(listed[::2], listed[1::2], strict=True))
    assert memory[str(jobs[0])] == f"{math.ceil(0.4 * asked)}M"
    assert memory[str(kept)] == f"{asked}M"


def running(stage: Stage, jobs: list[int]) -> int:
    return [stage.state(job) for job in jobs].count(SlurmJobState.RUNNING)


def run_victims(stage: Stage, node: str, times: int) -> list[int]:
    """Run as many victims as that, one after the other."""
    jobs = []
    for _ in range(times):
        body = VICTIM.format(folder=stage.layout.gang / "state", python=sys.executable)
        jobs.append(stage.submit(body, node, options=("--job-name=lu",)))
        assert stage.finish(jobs[-1], within_s=300) == [SlurmJobState.COMPLETED]
    return jobs


def together(stage: Stage, begin: int, *jobs: int) -> list[set[int]]:
    """Return which of the jobs ran in each slice from ``begin`` on that the record has of all of them."""
    by_slice: dict[int, dict[int, str]] = {}
    for row in stage.rows(*jobs, past=stage.status().slice):
        if row.slice >= begin:
            by_slice.setdefault(row.slice, {})[row.job] = str(row.role)
    return [
        {job for job, role in roles.items() if role == "run"}
        for roles in by_slice.values()
        if len(roles) == len(jobs)
    ]


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_harmful_pair_is_learnt_and_alternates_also_after_a_restart(pair_stage: Stage) -> None:
    stage = pair_stage
    (node,) = stage.nodes
    state = stage.layout.gang / "state"
    file = stage.layout.gang / "gangd.toml"
    learn = 'pairing_learn = true\npairing_threshold = 0.2\npairing_explore = 0\npairing_word = "name"\n'
    file.write_text(learn + file.read_text())
    os.kill(stage.daemon("gangd").pid, signal.SIGHUP)
    until((state / "pairs.json").exists, 60, "the controller learns")
    quiet = stage.start(OPPONENT.format(folder=state, name="quiet"), node, options=("--job-name=quiet",))
    run_victims(stage, node, 3)
    chase = stage.start(OPPONENT.format(folder=state, name="chase"), node, options=("--job-name=chase",))

    def losses() -> dict[str, float]:
        rows = [line.split(",") for line in (state / "pairs.csv").read_text().splitlines()]
        return {row[1]: float(row[2]) for row in rows if row[0] == "lu"}

    for _ in range(12):  # as many as it takes; the less of a core the chase has, the more
        run_victims(stage, node, 1)
        if losses().get("chase", 0.0) > 0.2:
            break
    until(lambda: losses().get("chase", 0.0) > 0.2, 60, f"the harm is learnt, {losses()}")
    print((state / "pairs.csv").read_text())
    assert losses()["quiet"] < 0.2
    before = stage.daemon("gangd")
    for restarted in (False, True):
        if restarted:
            os.kill(before.pid, signal.SIGKILL)
            until(lambda: stage.status().pid == stage.daemon("gangd").pid != before.pid, 60, "a new gangd")
        lu = stage.start(SPIN, node, options=("--job-name=lu",))
        for job in (lu, chase):
            stage.wait_state(job, "busy")
        begin = stage.status().slice + 2
        until(lambda begin=begin: stage.status().slice > begin + 12, 60, "turns")  # type: ignore[misc]
        running = together(stage, begin, lu, chase)
        assert len(running) >= 6
        assert {lu, chase} not in running, f"restarted: {restarted}"
        assert {lu} in running
        assert {chase} in running
        assert stage.job_status(quiet) is None, "the harmless one is never held"
        stage.client.cancel([lu])
        until(lambda lu=lu: not stage.job(lu).state.holds_cores, 60, "it is gone")  # type: ignore[misc]
    assert "they alternate" in (stage.layout.logs / "gangd.out").read_text()
