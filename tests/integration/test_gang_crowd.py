"""Some hundred agents at one controller over sockets with keys: all join, hear their plans, and are heard.

The small form of ``tests/benchmarks/test_gang_crowd.py``, which has ten thousand; nothing is timed here.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.fixtures.gang_crowd_run import CrowdRun, Plan
from tests.fixtures.looks import until

NODES, PROCESSES = 500, 2
SLICES = 5


def test_five_hundred_agents_join_get_plans_and_report(tmp_path: Path) -> None:
    with CrowdRun(tmp_path, Plan(NODES, churn=5, processes=PROCESSES, pace=200)) as run:
        run.join(within_s=120)
        began = run.status()
        assert began is not None

        def later() -> bool:
            now = run.status()
            return now is not None and now.slice >= began.slice + SLICES

        until(later, 120, f"{SLICES} slices")
        status = run.status()
        until_ns = time.monotonic_ns()
        decisions, counted = run.end()
    assert status is not None
    assert (status.running_jobs, status.shared_jobs) == (10 * NODES, 10 * NODES)
    assert sum(node.agent == "joined" for node in status.nodes) == NODES
    # A report after the hello of which the answer is on its way is no fault; nothing else is dropped.
    assert {kind: count for kind, count in status.dropped.items() if kind != "unknown_agent"} == {}
    assert counted["welcome"] == NODES
    assert counted["in_time"] > NODES * SLICES // 2
    assert counted["plans"] >= NODES
    assert len([when_ns for _, when_ns in decisions if when_ns <= until_ns]) >= SLICES // 2


def test_nodes_for_which_there_are_no_files_share_a_connection(tmp_path: Path) -> None:
    assert Plan(10_000).together(1 << 20) == 0
    assert 9_000 < 10_000 - Plan(10_000).together(20_000) < 10_000
    with CrowdRun(tmp_path, Plan(20, churn=1, processes=2), files=410) as run:
        assert run.together == 9
        run.join(within_s=60)
        status = run.status()
        run.end()
    assert status is not None
    assert all(node.agent == "joined" for node in status.nodes)
