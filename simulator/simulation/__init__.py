"""One trace under one setting: options, the trace's jobs in simulated form, and the run."""

from __future__ import annotations

from simulator.simulation.job_periods import JobPeriods, merged
from simulator.simulation.job_shapes import CLIPPED, SKIPPED
from simulator.simulation.one_simulation import PoolResult, SimulationResult, simulate
from simulator.simulation.simulation_options import Cleaning, OversizeRule, SimulationSetting, cleaning_of
from simulator.simulation.trace_workload import Workload, make_workload, without_patterns

__all__ = [
    "CLIPPED",
    "SKIPPED",
    "Cleaning",
    "JobPeriods",
    "OversizeRule",
    "PoolResult",
    "SimulationResult",
    "SimulationSetting",
    "Workload",
    "cleaning_of",
    "make_workload",
    "merged",
    "simulate",
    "without_patterns",
]
