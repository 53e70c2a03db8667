"""``python -m simulator.engine.ahead``: compile the engine before somebody waits for it."""

from __future__ import annotations

import numpy as np

from simulator.engine.build import PoolJobs
from simulator.engine.pool_run import Rules, run_pool
from simulator.placement.plain import SlurmPlacement
from simulator.policies.plain import Easy
from simulator.sharing.proportional import Proportional
from simulator.system import Pool


def compile_engine() -> None:
    """Compile the engine into its cache, or load it: run no jobs at all."""
    none = np.zeros(0, dtype=np.int64)
    jobs = PoolJobs(
        submit_us=none,
        requested_us=none,
        nodes=none,
        cores=none,
        memory_kib=none,
        app=none,
        phase_at=np.zeros(1, dtype=np.int64),
        phase_us=none,
    )
    pool = Pool(name="all", first=0, nodes=1, cores=1, multiplicity=1)
    run_pool(jobs, none, pool, Rules(policy=Easy(), placement=SlurmPlacement(), sharing=Proportional.of("1")))


if __name__ == "__main__":
    compile_engine()
