"""One trace under one setting: pools run one after the other, because their nodes and queues are apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.engine.invariants import Invariants
from simulator.engine.pool_run import PoolRun, run_pool
from simulator.engine.records import Ints
from simulator.options import Setting
from simulator.system import Pool
from simulator.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class PoolResult:
    """The run of one pool; ``members`` are the indices of its jobs in the workload."""

    pool: Pool
    members: Ints
    run: PoolRun


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What became of a workload.

    Parameters
    ----------
    setting, workload
        What was simulated.
    pools
        The runs of its pools.
    start_us, end_us
        Shape (jobs,), from the run's second 0.
    lag_us
        From when a job is due until it is in the queue.
    """

    setting: Setting
    workload: Workload
    pools: tuple[PoolResult, ...]
    start_us: Ints
    end_us: Ints
    lag_us: int = 0

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
    setting: Setting,
    *,
    progress: Callable[[int], None] | None = None,
    check: bool = False,
) -> Result:
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
        A time is too long for the sharing model, or a plug-in returned what cannot be.
    InvariantError
        An invariant does not hold.
    """
    start_us = np.zeros(workload.count, dtype=np.int64)
    end_us = np.zeros(workload.count, dtype=np.int64)
    pools: list[PoolResult] = []
    arrived = 0
    with_memory = setting.rules.node_memory_kib is not None
    for pool in setting.queues.pools:
        members = (
            workload.members(interactive=pool is setting.queues.interactive)
            if setting.queues.is_mq
            else np.arange(workload.count)
        )
        run = run_pool(
            workload.pool_jobs(members, with_memory=with_memory),
            workload.number[members],
            pool,
            setting.rules,
            progress=_counting_from(arrived, progress),
            after_event=Invariants() if check else None,
        )
        arrived += len(members)
        start_us[members], end_us[members] = run.start_us, run.end_us
        pools.append(PoolResult(pool, members, run))
    return Result(setting, workload, tuple(pools), start_us, end_us)


def _counting_from(done: int, progress: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """Return ``progress`` for a pool before which ``done`` jobs have arrived."""
    return None if progress is None else lambda count: progress(done + count)
