"""The short form of the campaign: one fault of every kind that takes little time, on a real Slurm."""

from __future__ import annotations

import random

import pytest

from tests.chaos.__main__ import play
from tests.chaos.faults import ALL
from tests.chaos.report import markdown
from tests.chaos.stage import usable

SEED = 1
# The long form has what takes longer (outages, time limits, namespaces), and what other tests show (hostile
# names, cancelled and suspended jobs, steps, heterogeneous jobs, keys, connections).
QUICK = (
    "SIGKILL controller", "SIGSTOP agent", "SIGKILL guardian", "SIGKILL agent and guardian",
    "SIGKILL controller, agents and guardians", "full /dev/shm", "agent restart with held jobs",
    "message loss", "network partition", "clock jump, controller", "slurmctld restart", "requeue",
    "job array", "node drain and resume", "replayed plans", "fuzzed frames to an agent",
)  # fmt: skip


@pytest.mark.slurm
@pytest.mark.chaos
@pytest.mark.parallel
@pytest.mark.timeout(1200)
def test_no_fault_leaves_a_job_frozen_lost_or_a_node_drained() -> None:
    why = usable()
    if why is not None:
        pytest.skip(f"the campaign {why}")
    kinds = {kind.name: kind for kind in ALL}
    dice = random.Random(SEED)
    chosen = [kinds[name] for name in QUICK]
    dice.shuffle(chosen)
    summary = play(chosen, SEED, dice, brief=True, quiet=True)
    assert summary.is_clean, markdown(summary)
