"""The state in which a pool's run begins."""

from __future__ import annotations

import numpy as np

from simulator.engine.building.build_lifecycles import build_lives, check_lives
from simulator.engine.building.build_state import PoolJobs, build_state
from simulator.engine.run.run_rules import RunRules
from simulator.jit.field_records import StateAllocator
from simulator.model.system import NodePool
from simulator.sharing import BuiltinSharing, Proportional, SharingModel, SharingTables
from simulator.state.engine_state import EngineState
from simulator.state.lifecycle_state import Lives


def new_state(
    make: StateAllocator, jobs: PoolJobs, pool: NodePool, rules: RunRules, *, with_lives: bool
) -> EngineState:
    """Return the state of an idle pool before its first job comes."""
    sharing = rules.sharing
    tables = (
        sharing.tables(pool.multiplicity, pool.first, pool.nodes)
        if isinstance(sharing, BuiltinSharing)
        else _tables_of_plain(sharing, pool)
    )
    return build_state(
        make,
        jobs,
        pool,
        tables,
        with_rows=getattr(rules.placement, "keeps_rows", False),
        node_memory_kib=rules.node_memory_kib,
        lives=_new_lives(make, jobs, pool, rules, tables.scale) if with_lives else None,
        together=rules.together,
    )


def _new_lives(make: StateAllocator, jobs: PoolJobs, pool: NodePool, rules: RunRules, scale: int) -> Lives:
    lives = jobs.every_life
    check_lives(lives, jobs.nodes, jobs.phase_at, np.maximum(jobs.run_us, jobs.requested_us), scale)
    return build_lives(make, lives, jobs.nodes, pool, rules.outages_of(pool), rules.after_failure)


def _tables_of_plain(sharing: SharingModel, pool: NodePool) -> SharingTables:
    """Return tables that only carry the scale of a user's model."""
    return Proportional.of(1).tables(pool.multiplicity, pool.first, pool.nodes)._replace(scale=sharing.scale)
