"""One trace under one setting: options, the trace's jobs in simulated form, and the run."""

from __future__ import annotations

from simulator.simulation.job_periods import Periods, merged
from simulator.simulation.job_shapes import CLIPPED, SKIPPED
from simulator.simulation.one_simulation import PoolResult, Result, simulate
from simulator.simulation.simulation_options import Cleaning, Oversize, Setting, cleaning_of
from simulator.simulation.trace_workload import Workload, make_workload, without_patterns

__all__ = [
    "CLIPPED",
    "SKIPPED",
    "Cleaning",
    "Oversize",
    "Periods",
    "PoolResult",
    "Result",
    "Setting",
    "Workload",
    "cleaning_of",
    "make_workload",
    "merged",
    "simulate",
    "without_patterns",
]
