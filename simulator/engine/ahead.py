"""``python -m simulator.engine.ahead``: compile the engine before somebody waits for it."""

from __future__ import annotations

import numpy as np

from simulator.engine.build import PoolJobs
from simulator.engine.pool_run import Rules, compiled_loop
from simulator.placement.plain import SlurmPlacement, ThesisPlacement
from simulator.placement.rule import Placement
from simulator.policies.plain import Easy
from simulator.sharing.proportional import Proportional
from simulator.system import Pool

CASES: tuple[tuple[int, Placement], ...] = (
    (1, SlurmPlacement()),
    (2, SlurmPlacement()),
    (2, ThesisPlacement()),
)
"""Multiplicity and placement of the loops that most runs want; EASY in each."""


def compile_engine() -> None:
    """Compile the loops that most runs want into their cache."""
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
    for multiplicity, placement in CASES:
        pool = Pool(name="all", first=0, nodes=1, cores=1, multiplicity=multiplicity)
        rules = Rules(policy=Easy(), placement=placement, sharing=Proportional.of("1"))
        compiled_loop(jobs, pool, rules).prepare()


if __name__ == "__main__":
    compile_engine()
