"""A trace that is made, for whoever has none of Theta's."""

from __future__ import annotations

import numpy as np

from foundation.units import US_PER_S
from simulator.engine.kernels.field_records import Ints
from simulator.simulation import Periods, Workload

_DAY_S = 86_400
_LEAST_S = 300
_SIZES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
_OFTEN = (0.45, 0.25, 0.15, 0.09, 0.04, 0.02)
_MOST_BURST = 12


def made_workload(jobs: int, nodes: int, load: float = 0.76, seed: int = 1) -> Workload:
    """Return jobs like Theta's: bursts of alike ones, mostly small, of minutes to a day.

    Parameters
    ----------
    jobs, nodes
        How many there are.
    load
        Share of the node time that they take until the last one comes.
    seed
        The same seed gives the same jobs.
    """
    dice = np.random.default_rng([seed, jobs, nodes])
    bursts = 1 + dice.geometric(0.4, jobs).clip(max=_MOST_BURST)
    burst = np.repeat(np.arange(jobs), bursts)[:jobs]
    size = np.maximum(1, (np.array(_SIZES) * nodes).astype(np.int64))[
        dice.choice(len(_SIZES), jobs, p=_OFTEN)
    ]
    asked_s = 900 * np.ceil(np.exp(dice.normal(9.0, 1.1, jobs)).clip(_LEAST_S, _DAY_S) / 900)
    used = dice.uniform(0.15, 1.0, jobs)
    run_s = np.maximum(60, (asked_s[burst] * used).astype(np.int64))
    apart = dice.exponential(1.0, jobs) * np.where(np.diff(burst, prepend=-1) > 0, 1.0, 0.02)
    submit = np.cumsum(apart)
    span_s = float((run_s * size[burst]).sum()) / nodes / load
    submit_us = np.floor((submit - submit[0]) / max(submit[-1], 1e-9) * span_s).astype(np.int64) * US_PER_S
    return _workload(submit_us, run_s * US_PER_S, asked_s[burst].astype(np.int64) * US_PER_S, size[burst])


def _workload(submit_us: Ints, run_us: Ints, requested_us: Ints, nodes: Ints) -> Workload:
    count = len(submit_us)
    nobody = np.full(count, -1, dtype=np.int64)
    return Workload(
        number=np.arange(1, count + 1, dtype=np.int64),
        interactive=np.zeros(count, dtype=bool),
        submit_us=submit_us,
        requested_us=np.maximum(requested_us, run_us),
        asked_us=requested_us,
        run_us=run_us,
        nodes=nodes,
        cores=np.ones(count, dtype=np.int64),
        memory_kib=np.full(count, np.nan),
        user=nobody,
        queue=nobody,
        periods=Periods.busy(run_us),
        timed_out=np.zeros(count, dtype=bool),
    )
