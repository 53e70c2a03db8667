"""Runs pools: with kernels where all rules are built in, else event by event; and what came of it."""

from __future__ import annotations

from simulator.engine.run.pool_outcome import PoolRun
from simulator.engine.run.pool_run import PoolWork, run_pool, run_pools
from simulator.engine.run.run_rules import RunRules

__all__ = ["PoolRun", "PoolWork", "RunRules", "run_pool", "run_pools"]
