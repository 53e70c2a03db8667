"""Runs the jobs of one pool: with kernels where all rules are built in, else event by event."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import numpy.typing as npt

from osub.errors import InputError
from simulator.engine.build import PoolJobs, build_state
from simulator.engine.build_lives import build_lives, check_lives
from simulator.engine.cluster import members
from simulator.engine.compile import Compilation, Compiled, compilation_wanted, is_anything_kept
from simulator.engine.life_books import Books, books_of
from simulator.engine.life_log import Stretches, joined, take_log
from simulator.engine.life_loop import run_life_events
from simulator.engine.life_state import OVER, Lives
from simulator.engine.loop import run_events
from simulator.engine.records import Ints, Maker, array_of, column
from simulator.engine.state import State
from simulator.engine.stepper import Stepper
from simulator.engine.time_line import run_together
from simulator.job import PLAIN_LIFE, Job
from simulator.outages import Failing, Outage
from simulator.placement.plain import SlurmPlacement, ThesisPlacement
from simulator.placement.rule import Placement
from simulator.policies.outlook import shapes_of
from simulator.policies.plain import BuiltinPolicy, LoopPolicy, Program
from simulator.policies.rule import PolicyError, QueuePolicy
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
    """The three plug-ins of a run, and what holds for its nodes.

    Parameters
    ----------
    policy, placement, sharing
        The plug-ins.
    node_memory_kib
        Memory of a node; None is unlimited.
    policy_name
        What the policy is called in messages; None: as its class.
    outages, failing, after_failure
        When nodes fail, or how it is drawn when, and how their jobs go on (one of ``AFTER_FAILURE``).
    """

    policy: QueuePolicy
    placement: Placement
    sharing: SharingModel
    node_memory_kib: int | None = None
    policy_name: str | None = None
    outages: Sequence[Outage] = ()
    failing: Failing | None = None
    after_failure: str = "checkpoint"

    def own_policy(self) -> QueuePolicy:
        """Return a copy of the policy, which may remember things, for one pool of one run.

        Raises
        ------
        PolicyError
            It cannot be copied.
        """
        try:
            return copy.deepcopy(self.policy)
        except Exception as error:
            name = self.policy_name or type(self.policy).__name__
            raise PolicyError(f"policy {name} cannot be copied for a run: {error}") from error

    def failing_until(self, nodes: int, horizon_us: int) -> Rules:
        """Return the rules with the outages that are drawn for ``nodes`` nodes up to an instant."""
        if self.failing is None:
            return self
        return replace(self, outages=self.failing.outages(nodes, horizon_us))

    def outages_of(self, pool: Pool) -> list[Outage]:
        """Return the outages of the pool's nodes, numbered as there."""
        last = pool.first + pool.nodes
        return [
            replace(outage, node=outage.node - pool.first)
            for outage in self.outages
            if pool.first <= outage.node < last
        ]

    @property
    def are_built_in(self) -> bool:
        """Whether kernels know all of them."""
        return (
            isinstance(self.policy, BuiltinPolicy | LoopPolicy)
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
    part_at, part_end
        Where the parts of each job begin, shape (jobs + 1,), and where those that it held last end.
    node, mask
        Node and set of cores of each part; shapes (parts,) and (parts, words).
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
    """

    start_us: Ints
    end_us: Ints
    part_at: Ints
    part_end: Ints
    node: npt.NDArray[np.int32]
    mask: Ints
    events: int
    engine_cpu_s: float
    gang: GangStepper | None = None
    stretches: Stretches | None = None
    books: Books | None = None

    def cores_of(self, job: int) -> dict[int, list[int]]:
        """Return the core ids by node that the job with index ``job`` held last."""
        parts = range(self.part_at[job], self.part_end[job])
        return {int(self.node[part]): members(self.mask[part]) for part in parts}


def _run_of(
    state: State,
    jobs: PoolJobs,
    engine_cpu_s: float,
    gang: GangStepper | None = None,
    logged: Sequence[Stretches] = (),
) -> PoolRun:
    if state.lives is not None:
        _check_all_over(state.lives, jobs)
    return PoolRun(
        start_us=column(state.runs, "start_us")[:-1],
        end_us=column(state.runs, "end_us")[:-1],
        part_at=jobs.part_at,
        part_end=column(state.jobs, "part_end")[:-1],
        node=column(state.parts, "node").astype(np.int32),
        mask=array_of(state.mask),
        events=int(column(state.clock, "events")[0]),
        engine_cpu_s=engine_cpu_s,
        gang=gang,
        stretches=None if state.lives is None else joined(logged, state.mask.shape[1]),
        books=None if state.lives is None else books_of(state.lives),
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
            user=None if jobs.user is None or jobs.user[index] < 0 else int(jobs.user[index]),
            life=PLAIN_LIFE if jobs.lives is None else jobs.lives[index],
        )
        for index in range(jobs.count)
    ]


def _new_state(make: Maker, jobs: PoolJobs, pool: Pool, rules: Rules, *, with_lives: bool) -> State:
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
    )


def _new_lives(make: Maker, jobs: PoolJobs, pool: Pool, rules: Rules, scale: int) -> Lives:
    lives = jobs.lives if jobs.lives is not None else [PLAIN_LIFE] * jobs.count
    check_lives(lives, jobs.nodes, jobs.phase_at, np.maximum(jobs.run_us, jobs.requested_us), scale)
    return build_lives(make, lives, jobs.nodes, pool, rules.outages_of(pool), rules.after_failure)


def _new_world(make: Maker, jobs: PoolJobs, pool: Pool, rules: Rules) -> tuple[State, Program]:
    """Return the state, and the loop that the built-in rules need with what it works on."""
    policy = rules.policy
    with_loop = isinstance(policy, LoopPolicy)
    with_lives = with_loop or jobs.lives is not None or bool(rules.outages)
    state = _new_state(make, jobs, pool, rules, with_lives=with_lives)
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

    state: State
    loop: Compiled
    arguments: tuple[object, ...]


def _compiled_world(jobs: PoolJobs, pool: Pool, rules: Rules) -> _CompiledWorld:
    state, (loop, arguments) = _new_world(Maker(compiled=True), jobs, pool, rules)
    return _CompiledWorld(state, Compiled(loop, (*arguments, 0)), arguments)


def compiled_loop(jobs: PoolJobs, pool: Pool, rules: Rules) -> Compiled:
    """Return the loop that would be compiled, or loaded, to run these jobs under built-in rules."""
    return _compiled_world(jobs, pool, rules).loop


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolWork:
    """A pool, its jobs, and their numbers in the trace, ascending."""

    pool: Pool
    jobs: PoolJobs
    numbers: Ints


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
    rules: Rules,
    *,
    progress: Callable[[int], None] | None = None,
    stepping: bool = False,
    after_event: Sequence[Callable[[Stepper], None]] | None = None,
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
    if rules.are_built_in and not stepping and after_event is None:
        runs: list[PoolRun] = []
        for part in work:
            arrived = sum(len(run.start_us) for run in runs)
            runs.append(_run_kernels(part.jobs, part.pool, rules, _counting_from(arrived, progress)))
        return runs
    steppers = [
        _stepper(
            _new_state(Maker(compiled=False), part.jobs, part.pool, rules, with_lives=True),
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
        _run_of(
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


def _run_kernels(jobs: PoolJobs, pool: Pool, rules: Rules, progress: Callable[[int], None] | None) -> PoolRun:
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
    logged: list[Stretches] = []
    while compiled(*arguments, EVENTS_A_CALL) > 0:
        logged += _taken(state)
        if progress is not None:
            progress(int(column(state.clock, "arrived")[0]))
    return _run_of(state, jobs, time.process_time() - began, logged=logged)


def _taken(state: State) -> list[Stretches]:
    """Empty the log, if there is one and something in it."""
    taken = None if state.lives is None else take_log(state.lives)
    return [] if taken is None else [taken]


def _check_all_over(lives: Lives, jobs: PoolJobs) -> None:
    """Refuse a run in which a job waits for ever, because nodes stay down."""
    waiting = np.flatnonzero(column(lives.jobs, "status") != OVER)
    if len(waiting):
        wanted = int(jobs.nodes[waiting[0]])
        raise InputError(
            f"{len(waiting)} jobs never end: too few nodes come back for one that asks for {wanted} nodes"
        )


def _is_small(jobs: PoolJobs) -> bool:
    return jobs.count <= MOST_PLAIN_JOBS and int(jobs.nodes.sum()) <= MOST_PLAIN_PARTS


@overload
def _run_plain(jobs: PoolJobs, pool: Pool, rules: Rules, most_s: None) -> PoolRun: ...


@overload
def _run_plain(jobs: PoolJobs, pool: Pool, rules: Rules, most_s: float) -> PoolRun | None: ...


def _run_plain(jobs: PoolJobs, pool: Pool, rules: Rules, most_s: float | None) -> PoolRun | None:
    """Run a pool in plain Python; None if that will not be done within ``most_s``."""
    state, (loop, arguments) = _new_world(Maker(compiled=False), jobs, pool, rules)
    began = time.process_time()
    logged: list[Stretches] = []
    while loop(*arguments, PLAIN_EVENTS) > 0:
        logged += _taken(state)
        took_s = time.process_time() - began
        if most_s is None or took_s < 0.1 * most_s:
            continue
        # every job arrives and ends
        if took_s * 2 * jobs.count > most_s * state.clock[0].events:
            return None
    return _run_of(state, jobs, time.process_time() - began, logged=logged)


def _stepper(
    state: State, jobs: list[Job], pool: Pool, rules: Rules, after_event: Callable[[Stepper], None] | None
) -> Stepper:
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
    return Stepper(
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


def _tables_of_plain(sharing: SharingModel, pool: Pool) -> SharingTables:
    """Return tables that only carry the scale of a user's model."""
    return Proportional.of(1).tables(pool.multiplicity, pool.first, pool.nodes)._replace(scale=sharing.scale)
