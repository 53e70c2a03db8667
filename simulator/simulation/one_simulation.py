"""One trace under one setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from foundation.errors import InputError
from simulator.engine.engine_invariants import Invariants
from simulator.engine.pool_run import PoolRun, PoolWork, run_pools
from simulator.jit.field_records import Ints
from simulator.model.system import NodePool
from simulator.simulation.job_memory import killed
from simulator.simulation.simulation_options import SimulationSetting
from simulator.simulation.trace_workload import Workload

_MOST_HORIZONS = 5
"""How often a run is tried with more outages before it is given up."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolResult:
    """The run of one pool; ``members`` are the indices of its jobs in the workload."""

    pool: NodePool
    members: Ints
    run: PoolRun


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """What became of a workload.

    Parameters
    ----------
    setting, workload
        What was simulated, with the submit times of jobs that depend on others as they came to be.
    pools
        The runs of its pools.
    start_us, end_us
        Shape (jobs,), from the run's second 0.
    lag_us
        From when a job is due until it is in the queue.
    """

    setting: SimulationSetting
    workload: Workload
    pools: tuple[PoolResult, ...]
    start_us: Ints
    end_us: Ints
    lag_us: int = 0

    @cached_property
    def out_of_memory(self) -> npt.NDArray[np.bool_] | None:
        """Which jobs are killed for what they really use; None: that is not looked at."""
        used_kib, node_kib = self.workload.used_kib, self.setting.rules.node_memory_kib
        if used_kib is None or node_kib is None:
            return None
        whole_kib = np.ceil(used_kib * self.workload.cores).astype(np.int64)
        found = np.zeros(self.workload.count, dtype=bool)
        for pool in self.pools:
            gang = pool.run.gang
            if gang is not None and gang.killed is not None:
                found[pool.members[sorted(gang.killed)]] = True
                continue
            found[pool.members] = killed(pool.run, pool.pool.nodes, whole_kib[pool.members], node_kib)
        return found

    @property
    def submit_us(self) -> Ints:
        """When each job was in the queue: waiting begins there, as in a real run."""
        return self.workload.submit_us + self.lag_us

    @property
    def engine_cpu_s(self) -> float:
        """CPU time in the engine."""
        return sum(result.run.engine_cpu_s for result in self.pools)

    @property
    def events(self) -> int:
        """How many events there were."""
        return sum(result.run.events for result in self.pools)


def simulate(
    workload: Workload,
    setting: SimulationSetting,
    *,
    progress: Callable[[int], None] | None = None,
    check: bool = False,
) -> SimulationResult:
    """Simulate a workload to the end of its last job.

    Parameters
    ----------
    workload
        The jobs.
    setting
        System, queues and rules.
    progress
        Called now and then with the number of jobs that have arrived.
    check
        Go event by event and check the engine's invariants after each.

    Raises
    ------
    InputError
        A time is too long for the sharing model, a placement returned what cannot be, or nodes fail so often
        that jobs do not end.
    PolicyError
        A policy did what cannot be.
    InvariantError
        An invariant does not hold.
    """
    queues, rules = setting.queues, setting.rules
    with_memory = rules.node_memory_kib is not None
    members = [
        workload.members(interactive=pool is queues.interactive)
        if queues.is_mq
        else np.arange(workload.count)
        for pool in queues.pools
    ]
    work = [
        PoolWork(
            pool=pool, jobs=workload.pool_jobs(own, with_memory=with_memory), numbers=workload.number[own]
        )
        for pool, own in zip(queues.pools, members, strict=True)
    ]
    horizon_us = _horizon_us(workload) if rules.failing is not None else 0
    for _ in range(_MOST_HORIZONS):
        runs = run_pools(
            work,
            rules.failing_until(setting.system.nodes, horizon_us),
            progress=progress,
            after_event=[Invariants() for _ in work] if check else None,
        )
        start_us = np.zeros(workload.count, dtype=np.int64)
        end_us = np.zeros(workload.count, dtype=np.int64)
        for own, run in zip(members, runs, strict=True):
            start_us[own], end_us[own] = run.start_us, run.end_us
        if rules.failing is None or int(end_us.max(initial=0)) < horizon_us:
            break
        horizon_us *= 4  # nodes failed no more before the last job ended
    else:
        raise InputError.naming(
            "nodes fail so often that jobs do not come to their end: choose a longer {mtbf}, or a shorter "
            "{checkpoint_interval}"
        )
    if any(run.submit_us is not None for run in runs):
        submit_us = workload.submit_us.copy()
        for own, run in zip(members, runs, strict=True):
            submit_us[own] = submit_us[own] if run.submit_us is None else run.submit_us
        workload = replace(workload, submit_us=submit_us)
    pools = tuple(map(PoolResult, queues.pools, members, runs))
    return SimulationResult(setting, workload, pools, start_us, end_us)


def _horizon_us(workload: Workload) -> int:
    """Return an instant by which all jobs have probably ended."""
    longest_us = int(workload.requested_us.max(initial=0))
    return 2 * (int(workload.submit_us.max(initial=0)) + 10 * longest_us) + 1
