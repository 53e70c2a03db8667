"""Daemons of gangd that die are started again, and `up` is not done while one of them is dead."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time

import pytest

from deploy.local.daemons import find_process
from foundation.errors import ClusterError
from foundation.records import SliceRecord
from tests.fixtures.exchange import osub
from tests.fixtures.looks import until
from tests.integration.gang.stage import SPIN, TURN_S, Stage
from tests.integration.waiting import agents_joined

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]


def test_killed_daemons_are_started_again_and_status_says_how_they_ended(stage: Stage) -> None:
    roles = ["gangd", *(f"gang-agent {node}" for node in stage.nodes)]
    before = {role: stage.daemon(role) for role in roles}
    for daemon in before.values():
        os.kill(daemon.pid, signal.SIGKILL)

    def back() -> bool:
        pids = {role: stage.daemon(role).pid for role in roles}
        status = stage.status()
        joined = {f"gang-agent {one.node}": one.agent_pid for one in status.nodes if one.agent == "joined"}
        is_new = all(pids[role] != before[role].pid for role in roles)
        return is_new and pids == {"gangd": status.pid, **joined}

    until(back, 60, "all daemons are back")
    for role, daemon in before.items():
        now = stage.daemon(role)
        assert (now.restarts, now.ended) == (daemon.restarts + 1, "SIGKILL")
        assert find_process(now) is not None
    document = json.loads(osub("cluster", "status", "--json", "--state", stage.cluster.folder).out)
    assert document["whole"]
    assert {document["ended"][role] for role in roles} == {"SIGKILL"}


def test_the_record_says_when_the_agent_was_dead(stage: Stage) -> None:
    node = stage.nodes[0]
    jobs = stage.start(SPIN, node), stage.start(SPIN, node)
    for job in jobs:
        stage.wait_state(job, "busy")
    agent = stage.daemon(f"gang-agent {node}")
    killed_s = time.time()
    os.kill(agent.pid, signal.SIGKILL)
    until(lambda: stage.node_status(node).agent_pid not in (None, agent.pid), 60, "another agent joins")
    back_s = time.time()
    until(lambda: stage.node_status(node).unattended_s > 0, TURN_S, "the status tells it")

    def gaps() -> list[SliceRecord]:
        rows = stage.rows(*jobs)
        return [row for row in rows if row.role == "unattended" and row.start_s > killed_s - 5]

    expected = {(job, node) for job in jobs}
    until(lambda: {(row.job, row.node) for row in gaps()} == expected, 60, "the record says it of both")
    rows = gaps()
    for job in jobs:
        length_s = sum(row.length_s for row in rows if row.job == job)
        assert 0.4 < length_s < back_s - killed_s + 2 * stage.quantum_ms / 1000 + 1


def test_up_is_not_done_while_an_agent_is_dead(stage: Stage) -> None:
    """An agent that finds another one's lock ends at once, again and again."""
    node = stage.nodes[0]
    agent = stage.daemon(f"gang-agent {node}")
    os.kill(agent.pid, signal.SIGTERM)
    until(lambda: find_process(agent) is None, 60, "the agent leaves")
    lock = os.open(stage.layout.gang / "agents" / f"agent-{node}.lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ClusterError, match=f"gang-agent {node} ended at once"):
            stage.cluster.up(stage.shape)
        assert not stage.cluster.status().is_whole
    finally:
        os.close(lock)
    stage.cluster.up(stage.shape)
    assert stage.cluster.status().is_whole
    assert agents_joined(stage.layout)
