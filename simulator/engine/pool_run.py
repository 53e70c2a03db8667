"""Runs the jobs of one pool: with kernels where all rules are built in, else event by event."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from simulator.engine.build import PoolJobs, build_state
from simulator.engine.cluster import members
from simulator.engine.compile import Compilation, Compiled, compilation_wanted, is_anything_kept
from simulator.engine.loop import run_events
from simulator.engine.records import Ints, Maker, array_of, column
from simulator.engine.state import State
from simulator.engine.stepper import Stepper
from simulator.job import Job
from simulator.placement.plain import SlurmPlacement, ThesisPlacement
from simulator.placement.rule import Placement
from simulator.policies.easy import Outlook
from simulator.policies.plain import BuiltinPolicy
from simulator.policies.rule import QueuePolicy
from simulator.sharing.model import BuiltinSharing, SharingModel, SharingTables
from simulator.sharing.proportional import Proportional
from simulator.slices.gang_stepper import GangStepper
from simulator.slices.model import ExactSlices
from simulator.system import Pool, node_names

EVENTS_A_CALL = 200_000

MOST_PLAIN_JOBS = 20_000
MOST_PLAIN_PARTS = 200_000
PLAIN_S = 4.0
PLAIN_EVENTS = 200
"""What is tried in plain Python while the loop is not compiled, for how long, how many events at a time."""


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
            isinstance(self.policy, BuiltinPolicy)
            and isinstance(self.placement, ThesisPlacement | SlurmPlacement)
            and isinstance(self.sharing, BuiltinSharing)
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolRun:
    """What became of the jobs of a pool.

    Parameters
    ----------
    start_us, end_us
        When each job started and ended.
    part_at
        Where the parts of each job begin; shape (jobs + 1,).
    node, mask
        Node and set of cores of each part; shapes (parts,) and (parts, words).
    events
        How many events there were.
    engine_cpu_s
        CPU time in the engine.
    gang
        With exact slices: the stepper, which has the record of the slices.
    """

    start_us: Ints
    end_us: Ints
    part_at: Ints
    node: npt.NDArray[np.int32]
    mask: Ints
    events: int
    engine_cpu_s: float
    gang: GangStepper | None = None

    def cores_of(self, job: int) -> dict[int, list[int]]:
        """Return the core ids by node that the job with index ``job`` held."""
        parts = range(self.part_at[job], self.part_at[job + 1])
        return {int(self.node[part]): members(self.mask[part]) for part in parts}


def _run_of(state: State, jobs: PoolJobs, engine_cpu_s: float, gang: GangStepper | None = None) -> PoolRun:
    return PoolRun(
        start_us=column(state.runs, "start_us")[:-1],
        end_us=column(state.runs, "end_us")[:-1],
        part_at=jobs.part_at,
        node=column(state.parts, "node").astype(np.int32),
        mask=array_of(state.mask),
        events=int(column(state.clock, "events")[0]),
        engine_cpu_s=engine_cpu_s,
        gang=gang,
    )


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


def _new_state(make: Maker, jobs: PoolJobs, pool: Pool, rules: Rules) -> State:
    sharing = rules.sharing
    return build_state(
        make,
        jobs,
        pool,
        sharing.tables(pool.multiplicity, pool.first, pool.nodes)
        if isinstance(sharing, BuiltinSharing)
        else _tables_of_plain(sharing, pool),
        with_rows=getattr(rules.placement, "keeps_rows", False),
        node_memory_kib=rules.node_memory_kib,
    )


def _new_world(make: Maker, jobs: PoolJobs, pool: Pool, rules: Rules) -> tuple[State, Outlook | None]:
    """Return what the built-in rules work on."""
    assert isinstance(rules.policy, BuiltinPolicy)
    state = _new_state(make, jobs, pool, rules)
    return state, rules.policy.outlook(make, state, int(jobs.shapes.max(initial=0)) + 1)


def compiled_loop(jobs: PoolJobs, pool: Pool, rules: Rules) -> Compiled:
    """Return the loop that would be compiled, or loaded, to run these jobs under built-in rules."""
    return Compiled(run_events, (*_new_world(Maker(compiled=True), jobs, pool, rules), 0))


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
    if rules.are_built_in and not stepping and after_event is None:
        return _run_kernels(jobs, pool, rules, progress)
    state = _new_state(Maker(compiled=False), jobs, pool, rules)
    began = time.process_time()
    stepper = _stepper(state, job_objects(jobs, numbers), pool, rules, after_event)
    stepper.run()
    gang = stepper if isinstance(stepper, GangStepper) else None
    return _run_of(state, jobs, time.process_time() - began, gang)


def _run_kernels(jobs: PoolJobs, pool: Pool, rules: Rules, progress: Callable[[int], None] | None) -> PoolRun:
    """Run a pool whose rules are all built in: compiled, or in plain Python while that is quicker."""
    wanted = compilation_wanted()
    if wanted is Compilation.NEVER:
        return _run_plain(jobs, pool, rules, None)
    if wanted is Compilation.WHEN_IT_PAYS and not _is_ready(jobs, pool, rules):
        run = _run_plain(jobs, pool, rules, PLAIN_S) if _is_small(jobs) else None
        if run is not None:
            return run
    state, outlook = _new_world(Maker(compiled=True), jobs, pool, rules)
    loop = Compiled(run_events, (state, outlook, 0))
    loop.prepare()  # before the clock of the engine starts
    began = time.process_time()
    while loop(state, outlook, EVENTS_A_CALL) == EVENTS_A_CALL:
        if progress is not None:
            progress(int(column(state.clock, "arrived")[0]))
    return _run_of(state, jobs, time.process_time() - began)


def _is_ready(jobs: PoolJobs, pool: Pool, rules: Rules) -> bool:
    return is_anything_kept() and compiled_loop(jobs, pool, rules).is_ready


def _is_small(jobs: PoolJobs) -> bool:
    return jobs.count <= MOST_PLAIN_JOBS and int(jobs.nodes.sum()) <= MOST_PLAIN_PARTS


@overload
def _run_plain(jobs: PoolJobs, pool: Pool, rules: Rules, most_s: None) -> PoolRun: ...


@overload
def _run_plain(jobs: PoolJobs, pool: Pool, rules: Rules, most_s: float) -> PoolRun | None: ...


def _run_plain(jobs: PoolJobs, pool: Pool, rules: Rules, most_s: float | None) -> PoolRun | None:
    """Run a pool in plain Python; None if that will not be done within ``most_s``."""
    state, outlook = _new_world(Maker(compiled=False), jobs, pool, rules)
    began = time.process_time()
    while run_events(state, outlook, PLAIN_EVENTS) == PLAIN_EVENTS:
        took_s = time.process_time() - began
        if most_s is None or took_s < 0.1 * most_s:
            continue
        # every job arrives and ends
        if took_s * 2 * jobs.count > most_s * state.clock[0].events:
            return None
    return _run_of(state, jobs, time.process_time() - began)


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
    return Proportional.of(1).tables(pool.multiplicity, pool.first, pool.nodes)._replace(scale=sharing.scale)
