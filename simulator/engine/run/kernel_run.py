"""Runs a pool whose rules are all built in: with kernels, compiled or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

from foundation.interruption import ShortCalls
from simulator.engine.building.build_state import PoolJobs
from simulator.engine.loop.event_loop import run_events
from simulator.engine.loop.lifecycle_loop import run_life_events
from simulator.engine.run.first_state import new_state
from simulator.engine.run.pool_outcome import PoolRun, run_of
from simulator.engine.run.run_rules import RunRules
from simulator.jit.compilation import Compilation, Compiled, compilation_wanted, is_anything_kept
from simulator.jit.field_records import StateAllocator, column
from simulator.model.system import NodePool
from simulator.policies.easy.backfill_state import shapes_of
from simulator.policies.easy.plain_policies import BuiltinPolicy, LoopPolicy, Program
from simulator.state.allocations import AllocationIntervals, take_log
from simulator.state.engine_state import EngineState

MOST_PLAIN_JOBS = 20_000
MOST_PLAIN_PARTS = 200_000
PLAIN_S = 6.0
PLAIN_EVENTS = 200
"""What is tried in plain Python while the loop is not compiled, for how long, how many events at a time."""


def _new_world(
    make: StateAllocator, jobs: PoolJobs, pool: NodePool, rules: RunRules
) -> tuple[EngineState, Program]:
    """Return the state, and the loop that the built-in rules need with what it works on."""
    policy = rules.policy
    with_loop = isinstance(policy, LoopPolicy)
    with_lives = with_loop or jobs.lives is not None or bool(rules.outages)
    state = new_state(make, jobs, pool, rules, with_lives=with_lives)
    if isinstance(policy, LoopPolicy):
        return state, policy.program(make, state, jobs)
    assert isinstance(policy, BuiltinPolicy)
    outlook = policy.outlook(make, state, shapes_of(state))
    if state.lives is None:
        return state, Program(run_events, (state, outlook))
    return state, Program(run_life_events, (state, state.lives, outlook))


@dataclass(frozen=True, slots=True)
class _CompiledWorld:
    """A state, the loop that is compiled, or loaded, to run it, and what that works on."""

    state: EngineState
    loop: Compiled
    arguments: tuple[object, ...]


def _compiled_world(jobs: PoolJobs, pool: NodePool, rules: RunRules) -> _CompiledWorld:
    state, (loop, arguments) = _new_world(StateAllocator(compiled=True), jobs, pool, rules)
    return _CompiledWorld(state, Compiled(loop, (*arguments, 0)), arguments)


def compiled_loop(jobs: PoolJobs, pool: NodePool, rules: RunRules) -> Compiled:
    """Return the loop that would be compiled, or loaded, to run these jobs under built-in rules."""
    return _compiled_world(jobs, pool, rules).loop


def run_kernels(
    jobs: PoolJobs, pool: NodePool, rules: RunRules, progress: Callable[[int], None] | None
) -> PoolRun:
    """Run a pool whose rules are all built in: compiled, or in plain Python while that is quicker."""
    wanted = compilation_wanted()
    if wanted is Compilation.NEVER:
        return _run_plain(jobs, pool, rules, None)
    world = _compiled_world(jobs, pool, rules) if is_anything_kept() else None
    if wanted is Compilation.WHEN_IT_PAYS and (world is None or not world.loop.is_ready) and _is_small(jobs):
        run = _run_plain(jobs, pool, rules, PLAIN_S)
        if run is not None:
            return run
    world = world or _compiled_world(jobs, pool, rules)
    state, compiled, arguments = world.state, world.loop, world.arguments
    compiled.prepare()  # before the clock of the engine starts
    began = time.process_time()
    logged: list[AllocationIntervals] = []
    loop = ShortCalls(compiled)
    while loop(*arguments) > 0:
        logged += _taken(state)
        if progress is not None:
            progress(int(column(state.clock, "arrived")[0]))
    return run_of(state, jobs, time.process_time() - began, logged=logged)


def _taken(state: EngineState) -> list[AllocationIntervals]:
    """Empty the log, if there is one and something in it."""
    taken = None if state.lives is None else take_log(state.lives)
    return [] if taken is None else [taken]


def _is_small(jobs: PoolJobs) -> bool:
    return jobs.count <= MOST_PLAIN_JOBS and int(jobs.nodes.sum()) <= MOST_PLAIN_PARTS


@overload
def _run_plain(jobs: PoolJobs, pool: NodePool, rules: RunRules, most_s: None) -> PoolRun: ...


@overload
def _run_plain(jobs: PoolJobs, pool: NodePool, rules: RunRules, most_s: float) -> PoolRun | None: ...


def _run_plain(jobs: PoolJobs, pool: NodePool, rules: RunRules, most_s: float | None) -> PoolRun | None:
    """Run a pool in plain Python; None if that will not be done within ``most_s``."""
    state, (loop, arguments) = _new_world(StateAllocator(compiled=False), jobs, pool, rules)
    began = time.process_time()
    logged: list[AllocationIntervals] = []
    while loop(*arguments, PLAIN_EVENTS) > 0:
        logged += _taken(state)
        took_s = time.process_time() - began
        if most_s is None or took_s < 0.1 * most_s:
            continue
        # every job arrives and ends
        if took_s * 2 * jobs.count > most_s * state.clock[0].events:
            return None
    return run_of(state, jobs, time.process_time() - began, logged=logged)
