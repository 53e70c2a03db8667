"""The simulator against closed forms: mean waits and sojourns within confidence intervals over 20 seeds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from simulator.engine.pool_run import PoolRun, run_pool
from simulator.engine.run_rules import RunRules
from simulator.model.jobs import PoolJobs
from simulator.model.system import NodePool
from simulator.placement import ThesisPlacement
from simulator.policies.easy.plain_policies import Fcfs
from simulator.sharing import Proportional

SEEDS = 20
JOBS = 20_000
WARM_UP = 2_000
# Student's t, 19 degrees of freedom, two-sided 99.9 %: a right simulator fails once in a thousand tests.
T_999 = 3.883

Sampler = Callable[[np.random.Generator, int], np.ndarray]


def run_serial_jobs(submit_s: np.ndarray, run_s: np.ndarray, cores: int, multiplicity: int) -> PoolRun:
    count = len(submit_s)
    run_us = np.maximum(1, np.rint(run_s * 1e6)).astype(np.int64)
    ones = np.ones(count, dtype=np.int64)
    phase_us = np.zeros(2 * count, dtype=np.int64)
    phase_us[1::2] = run_us
    jobs = PoolJobs(
        submit_us=np.rint(submit_s * 1e6).astype(np.int64), requested_us=run_us, nodes=ones,
        cores=ones, memory_kib=0 * ones, app=0 * ones, phase_at=np.arange(0, 2 * count + 1, 2),
        phase_us=phase_us,
    )  # fmt: skip
    pool = NodePool(name="main", first=0, nodes=1, cores=cores, multiplicity=multiplicity)
    rules = RunRules(policy=Fcfs(), placement=ThesisPlacement(), sharing=Proportional.of(1))
    return run_pool(jobs, np.arange(count), pool, rules)


def interval(means: list[float]) -> tuple[float, float]:
    """Return the mean of the seeds and half the width of its confidence interval."""
    values = np.array(means)
    return float(values.mean()), float(T_999 * values.std(ddof=1) / math.sqrt(len(values)))


def erlang_c_wait(arrival_rate: float, service_rate: float, servers: int) -> float:
    """Return the mean wait of M/M/c (Erlang C)."""
    offered = arrival_rate / service_rate
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - offered / servers)
    waiting = last / (sum(terms) + last)
    return waiting / (servers * service_rate - arrival_rate)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (4, 0.7), (16, 0.85)])
def test_first_come_first_served_is_m_m_c(servers: int, load: float) -> None:
    waits = []
    for seed in range(SEEDS):
        rng = np.random.default_rng([servers, seed])
        submit_s = np.cumsum(rng.exponential(1 / (load * servers), JOBS))
        result = run_serial_jobs(submit_s, rng.exponential(1.0, JOBS), servers, 1)
        waits.append(float(np.mean(result.start_us[WARM_UP:] / 1e6 - submit_s[WARM_UP:])))
    mean, half = interval(waits)
    assert abs(mean - erlang_c_wait(load * servers, 1.0, servers)) <= half


SIZES: dict[str, Sampler] = {
    "exponential": lambda rng, count: rng.exponential(1.0, count),
    "constant": lambda rng, count: np.ones(count),
    "hyperexponential": lambda rng, count: np.where(
        rng.random(count) < 0.9, rng.exponential(0.5, count), rng.exponential(5.5, count)
    ),
}


@pytest.mark.parametrize("sizes", SIZES)
def test_a_shared_core_is_processor_sharing(sizes: str) -> None:
    # M/G/1-PS: the mean sojourn is E[S] / (1 - load) whatever the sizes. With a load of 0.4 more than the 8
    # jobs that a core takes are there for less than a thousandth of the time.
    load = 0.4
    sojourns = []
    for seed in range(SEEDS):
        rng = np.random.default_rng([len(sizes), seed])
        submit_s = np.cumsum(rng.exponential(1 / load, JOBS))
        result = run_serial_jobs(submit_s, SIZES[sizes](rng, JOBS), 1, 8)
        sojourns.append(float(np.mean(result.end_us[WARM_UP:] / 1e6 - submit_s[WARM_UP:])))
    mean, half = interval(sojourns)
    assert abs(mean - 1 / (1 - load)) <= half


def test_processor_sharing_slows_every_size_alike() -> None:
    # E[T | S = x] = x / (1 - load): the slowdown does not depend on the size.
    load = 0.4
    short, long = [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng([7, seed])
        submit_s = np.cumsum(rng.exponential(1 / load, JOBS))
        run_s = rng.choice([0.5, 1.5], JOBS)
        slowdown = (run_serial_jobs(submit_s, run_s, 1, 8).end_us / 1e6 - submit_s) / run_s
        short.append(float(slowdown[run_s < 1].mean()))
        long.append(float(slowdown[run_s > 1].mean()))
    for means in (short, long):
        mean, half = interval(means)
        assert abs(mean - 1 / (1 - load)) <= half
