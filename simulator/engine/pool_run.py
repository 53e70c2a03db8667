"""Runs the jobs of one pool: with kernels where all rules are built in, else event by event."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from simulator.engine.build import PoolJobs, build_state
from simulator.engine.compile import compiled_once
from simulator.engine.loop import run_events
from simulator.engine.state import (
    ARRIVED_JOBS,
    BY_MULTIPLICITY,
    END_US,
    EVENTS,
    FCFS,
    START_US,
    THESIS,
    Ints,
    State,
)
from simulator.engine.stepper import Stepper
from simulator.job import Job
from simulator.placement.plain import SlurmPlacement, ThesisPlacement
from simulator.placement.rule import Placement
from simulator.policies.easy import empty_outlook
from simulator.policies.plain import Easy, EasyElsewhere, Fcfs
from simulator.policies.rule import QueuePolicy
from simulator.sharing.model import BuiltinSharing, SharingModel, SharingTables
from simulator.sharing.proportional import Proportional
from simulator.slices.gang_stepper import GangStepper
from simulator.slices.model import ExactSlices
from simulator.system import Pool, node_names

EVENTS_A_CALL = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The three plug-ins of a run, and the memory of a node (KiB; None is unlimited)."""

    policy: QueuePolicy
    placement: Placement
    sharing: SharingModel
    node_memory_kib: int | None = None

    @property
    def are_built_in(self) -> bool:
        """Whether kernels know all of them."""
        return (
            isinstance(self.policy, Fcfs | Easy | EasyElsewhere)
            and isinstance(self.placement, ThesisPlacement | SlurmPlacement)
            and isinstance(self.sharing, BuiltinSharing)
        )


@dataclass(frozen=True, slots=True, eq=False)
class PoolRun:
    """What became of the jobs of a pool.

    Parameters
    ----------
    state
        Everything at the end.
    engine_cpu_s
        CPU time in the engine.
    gang
        With exact slices: the stepper, which has the record of the slices.
    """

    state: State
    engine_cpu_s: float
    gang: GangStepper | None = None

    @property
    def start_us(self) -> Ints:
        """When each job started."""
        started: Ints = self.state.run[START_US, :-1]
        return started

    @property
    def end_us(self) -> Ints:
        """When each job ended."""
        ended: Ints = self.state.run[END_US, :-1]
        return ended

    @property
    def events(self) -> int:
        """How many events there were."""
        return int(self.state.clock[EVENTS])


def job_objects(jobs: PoolJobs, numbers: Ints) -> list[Job]:
    """Return the jobs of a pool as objects, for plug-ins in plain Python."""
    return [
        Job(
            index=index,
            number=int(numbers[index]),
            nodes=int(jobs.nodes[index]),
            cores=int(jobs.cores[index]),
            submit_us=int(jobs.submit_us[index]),
            phases_us=tuple(jobs.phase_us[jobs.phase_at[index] : jobs.phase_at[index + 1]].tolist()),
            requested_us=int(jobs.requested_us[index]),
            memory_kib=int(jobs.memory_kib[index]),
            app=int(jobs.app[index]),
        )
        for index in range(jobs.count)
    ]


def run_pool(
    jobs: PoolJobs,
    numbers: Ints,
    pool: Pool,
    rules: Rules,
    *,
    progress: Callable[[int], None] | None = None,
    stepping: bool = False,
    after_event: Callable[[Stepper], None] | None = None,
) -> PoolRun:
    """Run the jobs of one pool to their end.

    Parameters
    ----------
    jobs, numbers
        The jobs, and their numbers in the trace, ascending.
    pool, rules
        The nodes and the plug-ins.
    progress
        Called now and then with the number of jobs that have arrived.
    stepping
        Go event by event in plain Python although all rules are built in.
    after_event
        Called after each event; implies ``stepping``.

    Raises
    ------
    InputError
        A time is too long for the sharing model's units of work, or a plug-in returned what cannot be.
    """
    sharing = rules.sharing
    tables = (
        sharing.tables(pool.multiplicity, pool.first, pool.nodes)
        if isinstance(sharing, BuiltinSharing)
        else _tables_of_plain(sharing, pool)
    )
    built_in = rules.are_built_in and not stepping and after_event is None
    state = build_state(
        jobs,
        pool,
        tables,
        getattr(rules.policy, "code", FCFS),
        getattr(rules.placement, "code", THESIS),
        rules.node_memory_kib,
    )
    outlook = empty_outlook(state)
    if built_in:
        with compiled_once():
            run_events(state, outlook, 0)  # loads, or compiles, the kernels: no part of the engine's time
    began = time.process_time()
    if built_in:
        while run_events(state, outlook, EVENTS_A_CALL) == EVENTS_A_CALL:
            if progress is not None:
                progress(int(state.clock[ARRIVED_JOBS]))
        return PoolRun(state, time.process_time() - began)
    stepper = _stepper(state, job_objects(jobs, numbers), pool, rules, after_event)
    stepper.run()
    gang = stepper if isinstance(stepper, GangStepper) else None
    return PoolRun(state, time.process_time() - began, gang)


def _stepper(
    state: State, jobs: list[Job], pool: Pool, rules: Rules, after_event: Callable[[Stepper], None] | None
) -> Stepper:
    """Return what goes through the events one by one, with slices if the sharing model has them."""
    if isinstance(rules.sharing, ExactSlices):
        return GangStepper(
            state,
            jobs,
            policy=rules.policy,
            placement=rules.placement,
            sharing=rules.sharing,
            names=node_names(pool.nodes, pool.first),
            first_node=pool.first,
            after_event=after_event,
        )
    return Stepper(
        state,
        jobs,
        policy=rules.policy,
        placement=rules.placement,
        sharing=rules.sharing,
        first_node=pool.first,
        after_event=after_event,
    )


def _tables_of_plain(sharing: SharingModel, pool: Pool) -> SharingTables:
    """Return tables that only carry the scale of a user's model."""
    plain = Proportional.of(1).tables(pool.multiplicity, pool.first, pool.nodes)
    return plain._replace(kind=BY_MULTIPLICITY, scale=sharing.scale)
