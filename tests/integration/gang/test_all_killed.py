"""Agents, guardians and controller killed at once: only slurmd's health check is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.local.daemons import find_process
from gangd.guardian.state_folders import state_path
from gangd.guardian.statefile import StateFile, Word
from tests.fixtures.looks import until
from tests.integration.gang.frozen import frozen_cgroups
from tests.integration.gang.stage import SPIN, Stage
from tests.integration.waiting import agents_joined

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

HAMMER = [sys.executable, "-P", "-m", "gangd.agent.main", "thaw"]


def guardians(stage: Stage) -> list[int]:
    found = []
    for node in stage.nodes:
        state = StateFile.open(state_path(stage.layout.gang / "agents", node))
        found.append(state.word(Word.GUARDIAN_PID))
        state.close()
    return found


def kill_all(stage: Stage) -> None:
    """Leave a job frozen with no process that thaws it."""
    daemons = [stage.daemon(f"gang-agent {node}").pid for node in stage.nodes] + [stage.daemon("gangd").pid]
    supervisor = stage.daemon("supervisor")
    os.kill(supervisor.pid, signal.SIGTERM)  # it would start them again
    until(lambda: find_process(supervisor) is None, 60, "the supervisor has left")
    until(lambda: bool(frozen_cgroups(stage.nodes)), 60, "a job is held")
    # Agent and guardian each thaw when they see the other die: they are stopped first, so that neither does.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (*daemons, *guardians(stage)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def frozen_with_everybody_dead(stage: Stage) -> list[Path]:
    """Kill all until a job was just then held: between two slices nothing may be."""
    for _ in range(5):
        kill_all(stage)
        left = frozen_cgroups(stage.nodes)
        if left:
            return left
        revive(stage)
    raise AssertionError("nothing was ever held when all were killed")


def revive(stage: Stage) -> None:
    stage.cluster.up(stage.shape)
    until(lambda: agents_joined(stage.layout), 60, "the agents are back")


def wide_jobs(stage: Stage) -> None:
    for _ in range(2):
        stage.start(f"srun sh -c '{SPIN}'", *stage.nodes)


def test_the_health_check_of_the_cluster_thaws_what_no_other_can(stage: Stage) -> None:
    wide_jobs(stage)
    try:
        assert frozen_with_everybody_dead(stage)
        program = stage.client.config()["HealthCheckProgram"]
        done = subprocess.run([program], cwd="/", env={}, timeout=30, check=False)
        assert frozen_cgroups(stage.nodes) == []
        assert done.returncode == 0
    finally:
        revive(stage)


def test_the_thaw_tool_finds_every_state_file_of_the_host_and_reports_what_stays_frozen(stage: Stage) -> None:
    wide_jobs(stage)
    try:
        path = state_path(stage.layout.gang / "agents", stage.nodes[0])
        hidden = path.with_name("hidden")
        left = frozen_with_everybody_dead(stage)
        path.rename(hidden)  # a ledger that is lost
        if frozen_cgroups(stage.nodes) != left:  # slurmd made its health check just then, which thaws
            hidden.rename(path)
            revive(stage)
            left = frozen_with_everybody_dead(stage)
            path.rename(hidden)
        output = subprocess.run(
            [*HAMMER, "--expired"], capture_output=True, text=True, timeout=30, check=False
        )
        mine = [str(where) for where in left if stage.nodes[0] in str(where)]
        assert {str(where) for where in frozen_cgroups(stage.nodes)} == set(mine)
        assert output.returncode == (1 if output.stderr else 0)
        for where in mine:
            assert where in output.stderr
        hidden.rename(path)
        done = subprocess.run([*HAMMER, "--expired"], capture_output=True, text=True, timeout=30, check=False)
        assert frozen_cgroups(stage.nodes) == []
        others = [line for line in done.stderr.splitlines() if not any(node in line for node in stage.nodes)]
        assert done.stderr.splitlines() == others, "clusters of others that have died may have frozen jobs"
        assert done.returncode == (1 if others else 0)
    finally:
        revive(stage)
