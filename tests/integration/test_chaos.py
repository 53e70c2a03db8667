"""The short form of the campaign: one fault of every kind that takes little time, on a real Slurm."""

from __future__ import annotations

import random

import pytest

from tests.chaos.__main__ import play
from tests.chaos.faults import ALL
from tests.chaos.report import markdown
from tests.chaos.stage import usable

SEED = 1
# What takes longer (outages, time limits, namespaces) is left to the long form.
QUICK = (
    "SIGKILL controller",
    "SIGSTOP agent",
    "SIGKILL guardian",
    "SIGKILL agent and guardian",
    "SIGKILL controller, agents and guardians",
    "hostile names",
    "full /dev/shm",
    "agent restart with held jobs",
    "message loss",
    "network partition",
    "clock jump, controller",
    "slurmctld restart",
    "scancel",
    "requeue",
    "suspend and resume",
    "step in a held job",
    "job array",
    "heterogeneous job",
    "node drain and resume",
    "wrong key, agent",
    "foreign node key",
    "idle connections",
    "replayed plans",
    "fuzzed frames to the controller",
    "fuzzed frames to an agent",
)


@pytest.mark.slurm
@pytest.mark.chaos
@pytest.mark.beside
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
