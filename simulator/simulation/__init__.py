"""One trace under one setting: options, the trace's jobs in simulated form, and the run."""

from __future__ import annotations

from simulator.simulation.one_simulation import PoolResult, SimulationResult, simulate
from simulator.simulation.simulation_options import (
    CLIPPED,
    SKIPPED,
    Cleaning,
    OversizeRule,
    SimulationSetting,
    cleaning_of,
)
from simulator.simulation.trace_workload import JobPeriods, Workload, make_workload, merged, without_patterns
