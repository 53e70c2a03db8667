"""Sharing models by hand: who slows whom by how much, and nodes that differ."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from simulator.engine.pool_run import run_pool
from simulator.engine.run_rules import RunRules
from simulator.model.jobs import PoolJobs
from simulator.model.system import NodePool
from simulator.placement import ThesisPlacement
from simulator.policies.easy.plain_policies import Fcfs
from simulator.sharing import NoisyNodes, Pairwise, Proportional, SharingModel

SECOND = 1_000_000
PLAIN = Proportional(Fraction(6, 5))


def ends_s(
    sharing: SharingModel, run_s: list[int], *, nodes: int = 1, wide: int = 1, app: list[int] | None = None
) -> list[float]:
    """Run jobs of one core on each of ``wide`` one-core nodes, all submitted at 0, with M = 3."""
    count = len(run_s)
    run_us = np.array(run_s, dtype=np.int64) * SECOND
    phases = np.zeros(2 * count, dtype=np.int64)
    phases[1::2] = run_us
    jobs = PoolJobs(
        submit_us=np.zeros(count, dtype=np.int64),
        requested_us=run_us,
        nodes=np.full(count, wide, dtype=np.int64),
        cores=np.ones(count, dtype=np.int64),
        memory_kib=np.zeros(count, dtype=np.int64),
        app=np.array(app or [0] * count, dtype=np.int64),
        phase_at=np.arange(0, 2 * count + 1, 2, dtype=np.int64),
        phase_us=phases,
    )
    pool = NodePool(name="main", first=0, nodes=nodes, cores=1, multiplicity=3)
    rules = RunRules(policy=Fcfs(), placement=ThesisPlacement(), sharing=sharing)
    return [end / SECOND for end in run_pool(jobs, np.arange(count), pool, rules).end_us.tolist()]


def test_m_jobs_on_a_core_run_at_one_over_m_times_the_overhead() -> None:
    # 10 s each at 1/3.6 of the speed, until all end together.
    assert ends_s(PLAIN, [10, 10, 10]) == [36, 36, 36]


def test_the_speed_of_the_rest_rises_when_one_ends() -> None:
    # Both at 1/2.4: job 0 ends at 24, when job 1 has 20 s left, alone.
    assert ends_s(PLAIN, [10, 30]) == [24, 44]


def test_pairs_slow_each_other_by_their_own_factors() -> None:
    matrix = Pairwise(np.array([[2.0, 1.3], [2.7, 1.0]]))
    first, second = ends_s(matrix, [100, 100], app=[0, 1])
    assert first == pytest.approx(130, abs=0.01)
    assert second == pytest.approx(130 + 100 - 130 / 2.7, abs=0.01)


def test_excesses_of_several_others_add_up() -> None:
    matrix = Pairwise(np.array([[1.5, 1.0], [1.0, 1.0]]))
    assert ends_s(matrix, [10, 10, 10], app=[0, 0, 0]) == pytest.approx([20, 20, 20], abs=0.01)


def test_a_node_runs_at_its_own_speed_and_the_slowest_decides() -> None:
    noisy = NoisyNodes(PLAIN, np.array([0.5, 1.25]))
    assert ends_s(noisy, [100, 100], nodes=2) == [200, 80]
    assert ends_s(noisy, [100], nodes=2, wide=2) == [200]


def test_the_same_seed_draws_the_same_nodes() -> None:
    drawn = [NoisyNodes.draw(PLAIN, 50, 0.05, seed).factors.tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(0.5 <= factor <= 1.5 for factor in drawn[0])
