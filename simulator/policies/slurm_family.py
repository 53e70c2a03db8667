"""The options of ``--policy slurm``: Slurm's own parameters, with the defaults of Slurm 22.05.

Sources: slurm.conf(5), SchedulerParameters and Priority*; ``sched/backfill`` and ``slurmctld`` where the
manual says less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foundation.units import US_PER_S, seconds_to_us
from simulator.policies.policy_family import Family, PolicyOption, Value, choice, number
from simulator.policies.slurm_schedulers import SlurmSchedulers

if TYPE_CHECKING:
    from simulator.model.system import PoolQueues
    from simulator.simulation import Workload

_MINUTE_US = 60 * US_PER_S
_WEEK_S = 604_800.0


def _make(values: Mapping[str, Value]) -> SlurmSchedulers:
    def us(name: str) -> int:
        return seconds_to_us(float(values[name]))

    return SlurmSchedulers(
        tick_us=us("tick"),
        delay_us=us("delay"),
        every_us=us("every"),
        spacing_us=us("spacing"),
        ends_wait=values["ends"] == "wait",
        backfills=values["backfill"] == "yes",
        interval_us=us("interval"),
        phase_us=us("phase"),
        depth=int(values["depth"]),
        window_us=us("window"),
        reserve=int(values["reserve"]),
        resolution_us=us("resolution"),
        completing_us=us("completing"),
        limits=int(values["limits"]),
        age=float(values["age"]),
        size=float(values["size"]),
        fair=float(values["fair"]),
        small=values["favour"] == "small",
        max_age_us=us("max_age"),
        calc_us=us("calc"),
        half_life_us=us("half_life"),
    )


def _prepare(workload: Workload, _queues: PoolQueues, values: Mapping[str, Value], _seed: int) -> Workload:
    """Give the jobs the limits that Slurm plans with."""
    times = int(values["limits"])
    if not times:
        return workload
    minutes = np.maximum(1, -(-workload.requested_us * times // _MINUTE_US))
    return replace(workload, planned_us=minutes * _MINUTE_US)


def _seconds(name: str, default: float, text: str, least: float = 0.0) -> PolicyOption:
    return PolicyOption(name=name, help=text, default=default, least=least, most=1e9)


FAMILY = Family(
    name="slurm",
    help="Slurm's main and backfill schedulers with their periods, and multifactor priority",
    make=_make,
    prepare=_prepare,
    times_passes=True,
    options=(
        _seconds("tick", 1.0, "seconds between two looks of the controller for what has come"),
        _seconds("delay", 3.0, "seconds between two runs for what has come (batch_sched_delay)"),
        _seconds("every", 60.0, "seconds between two runs whatever has happened (sched_interval); 0: none"),
        _seconds("spacing", 0.0, "seconds between any two runs of the main scheduler (sched_min_interval)"),
        choice("ends", ("wait", "at-once"), "ends wait for a look, too (no Epilog, or defer), or do not"),
        choice("backfill", ("yes", "no"), "run the backfill scheduler (SchedulerType)"),
        _seconds("interval", 30.0, "seconds between two runs of the backfill scheduler (bf_interval)", 0.001),
        _seconds("phase", 0.0, "second at which it runs at first; 0: once a job has come"),
        number("depth", 500, 0, 1e9, "jobs that it looks at (bf_max_job_test)"),
        _seconds("window", 86_400.0, "seconds that it looks ahead (bf_window)"),
        number(
            "reserve", 0, 0, 1e9, "jobs that it keeps nodes for (bf_job_part_count_reserve); 0: any number"
        ),
        _seconds("resolution", 60.0, "seconds to which it rounds the times it keeps nodes (bf_resolution)"),
        _seconds("completing", 0.0, "seconds for which nodes take no job after one has ended"),
        number(
            "limits",
            0,
            0,
            1e9,
            "limits are whole minutes, of so many times the request; 0: the request itself",
        ),
        _seconds("age", 0.0, "weight of age (PriorityWeightAge)"),
        _seconds("size", 0.0, "weight of size (PriorityWeightJobSize)"),
        _seconds("fair", 0.0, "weight of fair share (PriorityWeightFairshare)"),
        choice("favour", ("large", "small"), "jobs of which size go first (PriorityFavorSmall)"),
        _seconds("max_age", _WEEK_S, "seconds after which age counts in full (PriorityMaxAge)", 1.0),
        _seconds("calc", 300.0, "seconds between two looks at ages (PriorityCalcPeriod); 0: always"),
        _seconds("half_life", _WEEK_S, "seconds in which usage decays by half (PriorityDecayHalfLife)", 1.0),
    ),
)
