"""Runs the jobs of pools, with kernels where all rules are built in, else event by event."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, overload, runtime_checkable

import numpy as np

from foundation.errors import InputError
from foundation.interruption import ShortCalls
from foundation.units import counted, verb
from simulator.engine.build_state import build_lifecycles, build_state, check_lifecycles
from simulator.engine.gang_stepper import ExactSlices, GangStepper
from simulator.engine.python_engine import PythonEngine
from simulator.engine.run_rules import RunRules
from simulator.jit.compilation import Compilation, Compiled, compilation_wanted, is_anything_kept
from simulator.jit.field_records import Ints, StateAllocator, array_of, column, column_view
from simulator.model.jobs import PLAIN_LIFECYCLE, PoolJobs, SimulatedJob
from simulator.model.system import FAR_US, NodePool
from simulator.policy_interface import KernelPolicy, Program
from simulator.sharing import BuiltinSharing, Proportional, SharingModel, SharingTables
from simulator.state.allocations import AllocationIntervals, Places, joined, take_log
from simulator.state.engine_state import EngineState
from simulator.state.lifecycle_state import OVER, Accounting, LifecycleTables, books_of


def new_state(
    make: StateAllocator, jobs: PoolJobs, pool: NodePool, rules: RunRules, *, with_lifecycles: bool
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
        lifecycles=_new_lifecycles(make, jobs, pool, rules, tables.scale) if with_lifecycles else None,
        together=rules.together,
    )


def _new_lifecycles(
    make: StateAllocator, jobs: PoolJobs, pool: NodePool, rules: RunRules, scale: int
) -> LifecycleTables:
    lifecycles = jobs.every_lifecycle
    check_lifecycles(lifecycles, jobs.nodes, jobs.phase_at, np.maximum(jobs.run_us, jobs.requested_us), scale)
    return build_lifecycles(make, lifecycles, jobs.nodes, pool, rules.outages_of(pool), rules.after_failure)


def _tables_of_plain(sharing: SharingModel, pool: NodePool) -> SharingTables:
    """Return tables that only carry the scale of a user's model."""
    return Proportional.of(1).tables(pool.multiplicity, pool.first, pool.nodes)._replace(scale=sharing.scale)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolRun:
    """What became of the jobs of a pool.

    Parameters
    ----------
    start_us, end_us
        When each job started and ended.
    places
        The nodes and cores that each job held last.
    events
        How many events there were.
    engine_cpu_s
        CPU time in the engine.
    gang
        With exact slices: the stepper, which has the record of the slices.
    stretches
        What was held from when to when, of jobs that held more than one thing; None where every job ran once.
    books
        What time was spent on; None where every job ran once.
    most_jobs
        Most jobs on a core, where the policy and not the pool decides; None: as the pool says.
    submit_us
        When each job arrived, where some depend on others; None: as they were to.
    """

    start_us: Ints
    end_us: Ints
    places: Places
    events: int
    engine_cpu_s: float
    gang: GangStepper | None = None
    stretches: AllocationIntervals | None = None
    books: Accounting | None = None
    most_jobs: int | None = None
    submit_us: Ints | None = None

    def cores_of(self, job: int) -> dict[int, list[int]]:
        """Return the core ids by node that the job with index ``job`` held last."""
        return self.places.cores_of(job)


def run_of(
    state: EngineState,
    jobs: PoolJobs,
    engine_cpu_s: float,
    gang: GangStepper | None = None,
    logged: Sequence[AllocationIntervals] = (),
) -> PoolRun:
    """Return what became of a pool's jobs, now that all events are processed.

    Raises
    ------
    InputError
        A job waits for ever.
    """
    if state.lifecycles is not None:
        _check_all_over(state.lifecycles, jobs)
    return PoolRun(
        start_us=column(state.runs, "start_us")[:-1],
        end_us=column(state.runs, "end_us")[:-1],
        places=Places.of_parts(
            jobs.part_at[:-1],
            column(state.jobs, "part_end")[:-1],
            column_view(state.parts, "node"),
            array_of(state.mask),
        ),
        events=int(column(state.clock, "events")[0]),
        engine_cpu_s=engine_cpu_s,
        gang=gang,
        stretches=None if state.lifecycles is None else joined(logged, state.mask.shape[1]),
        books=None if state.lifecycles is None else books_of(state.lifecycles),
        submit_us=None if jobs.dependencies is None else column(state.jobs, "submit_us")[:-1],
    )


def _check_all_over(lifecycles: LifecycleTables, jobs: PoolJobs) -> None:
    """Refuse a run in which a job waits for ever, because nodes stay down."""
    waiting = np.flatnonzero(column(lifecycles.jobs, "status") != OVER)
    if len(waiting):
        wanted = int(jobs.nodes[waiting[0]])
        raise InputError(
            f"{counted(len(waiting), 'job')} never {verb(len(waiting), 'ends', 'end')}: too few nodes come "
            f"back for one that asks for {counted(wanted, 'node')}"
        )


MOST_PLAIN_JOBS = 20_000
MOST_PLAIN_PARTS = 200_000
PLAIN_S = 6.0
PLAIN_EVENTS = 200
"""What is tried in plain Python while the loop is not compiled, for how long, how many events at a time."""


def _new_world(
    make: StateAllocator, jobs: PoolJobs, pool: NodePool, rules: RunRules
) -> tuple[EngineState, Program]:
    """Return the state, and the loop of the policy with what it works on."""
    policy = rules.policy
    assert isinstance(policy, KernelPolicy)
    with_lifecycles = policy.keeps_lifecycles or jobs.lifecycles is not None or bool(rules.outages)
    state = new_state(make, jobs, pool, rules, with_lifecycles=with_lifecycles)
    return state, policy.program(make, state, jobs)


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
            progress(int((column(state.clock, "arrived") - column(state.clock, "unreleased"))[0]))
    return run_of(state, jobs, time.process_time() - began, logged=logged)


def _taken(state: EngineState) -> list[AllocationIntervals]:
    """Empty the log, if there is one and something in it."""
    taken = None if state.lifecycles is None else take_log(state.lifecycles)
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


def job_objects(jobs: PoolJobs, numbers: Ints) -> list[SimulatedJob]:
    """Return the jobs of a pool as objects, for plug-ins in plain Python."""
    return [
        SimulatedJob(
            index=index,
            number=int(numbers[index]),
            nodes=int(jobs.nodes[index]),
            cores=int(jobs.cores[index]),
            submit_us=int(jobs.submit_us[index]),
            phases_us=tuple(jobs.phase_us[jobs.phase_at[index] : jobs.phase_at[index + 1]].tolist()),
            requested_us=int(jobs.requested_us[index]),
            memory_kib=int(jobs.memory_kib[index]),
            used_kib=0 if jobs.used_kib is None else int(jobs.used_kib[index]),
            app=int(jobs.app[index]),
            user=None if jobs.user is None or jobs.user[index] < 0 else int(jobs.user[index]),
            life=PLAIN_LIFECYCLE if jobs.lifecycles is None else jobs.lifecycles[index],
        )
        for index in range(jobs.count)
    ]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolWork:
    """A pool, its jobs, and their numbers in the trace, ascending."""

    pool: NodePool
    jobs: PoolJobs
    numbers: Ints


@runtime_checkable
class PoolPolicy(Protocol):
    """A built-in policy that runs the jobs of a whole pool itself, on a state of its own."""

    def run_pool(
        self, work: PoolWork, rules: RunRules, *, check: bool, progress: Callable[[int], None] | None
    ) -> PoolRun:
        """Run the jobs of a pool to their end; with ``check``, check the invariants after every event."""


def run_pool(
    jobs: PoolJobs,
    numbers: Ints,
    pool: NodePool,
    rules: RunRules,
    *,
    progress: Callable[[int], None] | None = None,
    stepping: bool = False,
    after_event: Callable[[PythonEngine], None] | None = None,
) -> PoolRun:
    """Run the jobs of one pool to their end; see ``run_pools``."""
    (run,) = run_pools(
        [PoolWork(pool=pool, jobs=jobs, numbers=numbers)],
        rules,
        progress=progress,
        stepping=stepping,
        after_event=None if after_event is None else [after_event],
    )
    return run


def run_pools(
    work: Sequence[PoolWork],
    rules: RunRules,
    *,
    progress: Callable[[int], None] | None = None,
    stepping: bool = False,
    after_event: Sequence[Callable[[PythonEngine], None]] | None = None,
) -> list[PoolRun]:
    """Run the jobs of all pools to their end, on one time line where a policy could see that.

    Parameters
    ----------
    work
        The pools and their jobs.
    rules
        The plug-ins. Each pool has its own copy of the policy.
    progress
        Called now and then with the number of jobs that have arrived.
    stepping
        Go event by event in plain Python although all rules are built in.
    after_event
        Called after each event of each pool; implies ``stepping``.

    Raises
    ------
    InputError
        A time is too long for the sharing model's units of work, or a placement returned what cannot be.
    PolicyError
        A policy did what cannot be.
    """
    if isinstance(rules.policy, PoolPolicy):
        checked = after_event is not None
        return [rules.policy.run_pool(part, rules, check=checked, progress=progress) for part in work]
    if rules.are_built_in and not stepping and after_event is None:
        runs: list[PoolRun] = []
        for part in work:
            arrived = sum(len(run.start_us) for run in runs)
            runs.append(run_kernels(part.jobs, part.pool, rules, _counting_from(arrived, progress)))
        return runs
    steppers = [
        _stepper(
            new_state(StateAllocator(compiled=False), part.jobs, part.pool, rules, with_lifecycles=True),
            job_objects(part.jobs, part.numbers),
            part.pool,
            rules,
            None if after_event is None else after_event[place],
        )
        for place, part in enumerate(work)
    ]
    began = time.process_time()
    run_together(steppers)
    engine_cpu_s = (time.process_time() - began) / len(steppers)
    return [
        run_of(
            stepper.state,
            part.jobs,
            engine_cpu_s,
            stepper if isinstance(stepper, GangStepper) else None,
            stepper.logged,
        )
        for stepper, part in zip(steppers, work, strict=True)
    ]


def _counting_from(done: int, progress: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """Return ``progress`` for a pool before which ``done`` jobs have arrived."""
    return None if progress is None else lambda count: progress(done + count)


def _stepper(
    state: EngineState,
    jobs: list[SimulatedJob],
    pool: NodePool,
    rules: RunRules,
    after_event: Callable[[PythonEngine], None] | None,
) -> PythonEngine:
    """Return what goes through the events one by one, with slices if the sharing model has them."""
    rules = replace(rules, policy=rules.own_policy())
    if isinstance(rules.sharing, ExactSlices):
        return GangStepper(state, jobs, rules, pool, rules.sharing, after_event)
    return PythonEngine(state, jobs, rules, pool, after_event)


def run_together(steppers: Sequence[PythonEngine]) -> None:
    """Run pools to their end, event by event in order of time; at one instant, in their order.

    Pools with exact slices have a clock of their own and are run one after the other.
    """
    if len(steppers) == 1 or any(isinstance(stepper, GangStepper) for stepper in steppers):
        for stepper in steppers:
            stepper.run()
        return
    desks = {stepper.pool_name: stepper for stepper in steppers}
    for stepper in steppers:
        stepper.pools = desks
    for stepper in steppers:
        stepper.begin()
    while True:
        stepper = min(steppers, key=lambda pool: pool.next_us)
        at_us = stepper.next_us
        if at_us == FAR_US:
            break
        for other in steppers:
            other.state.clock[0].now_us = at_us
        stepper.step()
    for stepper in steppers:
        stepper.check_end()
