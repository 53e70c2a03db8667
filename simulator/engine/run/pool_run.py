"""Runs the jobs of pools: with kernels where all rules are built in, else event by event."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from simulator.engine.building.build_state import PoolJobs
from simulator.engine.context.python_engine import PythonEngine
from simulator.engine.run.first_state import new_state
from simulator.engine.run.kernel_run import run_kernels
from simulator.engine.run.pool_outcome import PoolRun, run_of
from simulator.engine.run.run_rules import RunRules
from simulator.jit.field_records import Ints, StateAllocator
from simulator.model.jobs import PLAIN_LIFE, SimulatedJob
from simulator.model.system import NodePool, node_names
from simulator.slices.exact_slices import ExactSlices
from simulator.slices.gang_stepper import GangStepper
from simulator.state.engine_state import FAR_US, EngineState


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
            app=int(jobs.app[index]),
            user=None if jobs.user is None or jobs.user[index] < 0 else int(jobs.user[index]),
            life=PLAIN_LIFE if jobs.lives is None else jobs.lives[index],
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
        ...


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
            new_state(StateAllocator(compiled=False), part.jobs, part.pool, rules, with_lives=True),
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
    if isinstance(rules.sharing, ExactSlices):
        return GangStepper(
            state,
            jobs,
            policy=rules.own_policy(),
            placement=rules.placement,
            sharing=rules.sharing,
            names=node_names(pool.nodes, pool.first),
            first_node=pool.first,
            policy_name=rules.policy_name,
            after_event=after_event,
        )
    return PythonEngine(
        state,
        jobs,
        policy=rules.own_policy(),
        placement=rules.placement,
        sharing=rules.sharing,
        first_node=pool.first,
        pool_name=pool.name,
        policy_name=rules.policy_name,
        after_event=after_event,
    )


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
