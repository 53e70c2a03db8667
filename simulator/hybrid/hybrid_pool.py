"""A hybrid pool run to its end, compiled or plain, and as a run that can be recorded.

A hybrid run as the run of any simulated pool, and what must hold of it after every event.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from foundation.errors import InputError, UsageError
from foundation.interruption import ShortCalls
from simulator.engine.engine_invariants import InvariantError
from simulator.engine.pool_run import PoolRun, PoolWork
from simulator.eviction import EvictableJob, EvictionChoice, cheapest
from simulator.hybrid.hybrid_build import Mechanism, build_world, misfit
from simulator.hybrid.hybrid_loop import STUCK, run
from simulator.hybrid.hybrid_state import (
    COMING,
    GATHERING,
    KNOWN,
    LEAVING,
    MALLEABLE,
    NO_JOB,
    ON_DEMAND,
    RUNNING,
    WAITING,
    HybridTables,
    overhead_at,
)
from simulator.hybrid.ondemand_jobs import can_give
from simulator.jit.compilation import Compilation, Compiled, compilation_wanted
from simulator.jit.field_records import IntegerGrid, Ints, StateAllocator, column
from simulator.model.jobs import PoolJobs
from simulator.state.allocations import AllocationIntervals, Places, joined, words_of
from simulator.state.lifecycle_state import Accounting
from simulator.state.node_sets import WORD_BITS, full_set

_PLAIN_JOBS, _PLAIN_NODES = 1_500, 300
_UNITS_A_NODE_HOUR = 3_600_000_000
_COLUMNS = ("job", "from_us", "to_us", "why", "setup_us", "lost_us")
_PIECE = 256
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class HybridOutcome:
    """What became of the jobs of a pool: the tables at the end, what was held, and the CPU time it took."""

    world: HybridTables
    stretches: AllocationIntervals
    engine_cpu_s: float

    def column(self, name: str) -> Ints:
        """Return one field of all jobs (``HybridJobRecord``)."""
        return column(self.world.jobs, name)

    @property
    def events(self) -> int:
        """How many events there were."""
        return int(column(self.world.clock, "events")[0])

    @property
    def decisions(self) -> int:
        """How often an on-demand job came."""
        return int(column(self.world.clock, "decisions")[0])


def run_jobs(
    jobs: PoolJobs,
    nodes: int,
    mechanism: Mechanism,
    overhead: Fraction = Fraction(6, 5),
    *,
    records: bool = False,
    progress: Callable[[int], None] | None = None,
    after_event: Callable[[HybridTables], None] | None = None,
    clocked: list[float] | None = None,
) -> HybridOutcome:
    """Run the jobs to the end of the last one.

    Parameters
    ----------
    jobs, nodes, mechanism, overhead, records
        See ``build_world``.
    progress
        Called now and then with the number of jobs that have arrived.
    after_event
        Called after each event and its pass; implies plain Python.
    clocked
        Gets the seconds that each event and its pass took.

    Raises
    ------
    InputError
        Jobs would wait for ever.
    """
    compiled = after_event is None and _is_compiled(jobs.count, nodes)
    world = build_world(StateAllocator(compiled=compiled), jobs, nodes, mechanism, overhead, records=records)
    loop: Callable[[HybridTables, int], int] = run
    if compiled:
        loop = Compiled(run, (world, 0))
        loop.prepare()
    plain = seen(world)
    began = time.process_time()
    logged: list[AllocationIntervals] = []
    several = ShortCalls(loop, None if after_event is None and clocked is None else 1)
    while True:
        began_s = time.perf_counter()
        left = several(world)
        if clocked is not None:
            clocked.append(time.perf_counter() - began_s)
        if records:
            logged.append(_take_log(plain, jobs.cores))
        if left == STUCK:
            raise InputError("jobs wait for ever: one asks for more nodes than there are")
        if progress is not None:
            progress(int(column(world.clock, "arrived")[0]))
        if plain.clock[0].asking != NO_JOB:
            name_victims(plain, int(plain.clock[0].asking))
        elif after_event is not None:
            after_event(world)
        if left == 0:
            break
    return HybridOutcome(world, joined(logged, core_masks(jobs.cores).shape[1]), time.process_time() - began)


def _is_compiled(count: int, nodes: int) -> bool:
    wanted = compilation_wanted()
    if wanted is Compilation.WHEN_IT_PAYS:
        return count > _PLAIN_JOBS or nodes > _PLAIN_NODES
    return wanted is Compilation.ALWAYS


def name_victims(world: HybridTables, demand: int) -> None:
    """Mark the running jobs whose preemption costs least together."""
    clock, rules = world.clock[0], world.rules[0]
    now_us = int(clock.now_us)
    active = [int(world.active[place]) for place in range(clock.active)]
    able = [job for job in active if can_give(world, job) > 0]
    question = [
        EvictableJob(
            name=str(job),
            nodes=int(world.jobs[job].plain),
            loss=overhead_at(world.jobs[job], now_us) / int(rules.whole) / _UNITS_A_NODE_HOUR,
        )
        for job in able
    ]
    need = int(world.jobs[demand].missing) - int(clock.free)
    for name, choice in cheapest(question, need).choices.items():
        if choice is EvictionChoice.KILL:
            world.jobs[int(name)].picked = 1


def seen(world: HybridTables) -> HybridTables:
    """Return the tables, of either kind, such that Python reads and writes fields by name."""
    return HybridTables(*(_by_name(table) for table in world))


def _by_name(table: Any) -> Any:
    if isinstance(table, np.ndarray) and table.dtype.names:
        return table.view(np.recarray)
    return table


def _take_log(world: HybridTables, cores: Ints) -> AllocationIntervals:
    """Empty the log; return what was in it. A job has the first of the cores of its nodes, so many."""
    rows = int(world.clock[0].logged)
    world.clock[0].logged = 0
    if isinstance(world.log, np.ndarray):
        columns = {name: np.asarray(world.log[name][:rows]).copy() for name in _COLUMNS}
    else:
        log = [world.log[row] for row in range(rows)]
        columns = {
            name: np.array([getattr(entry, name) for entry in log], dtype=np.int64) for name in _COLUMNS
        }
    pieces = [_held(world.mask, first, min(first + _PIECE, rows)) for first in range(0, rows, _PIECE)]
    which, node = (np.concatenate(parts) for parts in zip(*pieces, strict=True)) if pieces else (_NONE, _NONE)
    return AllocationIntervals(
        **columns,
        nodes=np.bincount(which, minlength=rows).astype(np.int64),
        node=node.astype(np.int32),
        mask=core_masks(cores)[columns["job"][which]],
    )


def _held(mask: IntegerGrid, first: int, last: int) -> tuple[Ints, Ints]:
    """Return the rows and nodes of the members of rows of sets, in order."""
    if isinstance(mask, np.ndarray):
        words = mask[first:last]
    else:
        words = np.array([words_of(mask, row) for row in range(first, last)], dtype=np.int64)
    bits = (words[:, :, np.newaxis] >> np.arange(WORD_BITS)) & 1
    rows, nodes = np.nonzero(bits.reshape(last - first, -1))
    return rows + first, nodes


def core_masks(cores: Ints) -> Ints:
    """Return the set of the first cores of a node for each job, so many as it has there."""
    masks = np.zeros((len(cores), len(full_set(int(cores.max(initial=1))))), dtype=np.int64)
    for count in np.unique(cores).tolist():
        first = full_set(count)
        masks[cores == count, : len(first)] = first
    return masks


_HOLDING = (RUNNING, LEAVING, GATHERING)


def run_whole_pool(
    work: PoolWork,
    mechanism: Mechanism,
    overhead: Fraction,
    *,
    check: bool,
    progress: Callable[[int], None] | None,
) -> PoolRun:
    """Run the jobs of a pool, each on whole nodes.

    Raises
    ------
    InputError
        A job cannot be counted, or waits for ever.
    UsageError
        Nodes take more than one job.
    InvariantError
        With ``check``: something does not hold.
    """
    jobs, pool = work.jobs, work.pool
    if pool.multiplicity != 1:
        raise UsageError.naming("hybrid policies give whole nodes to jobs: use {multiplicity} 1")
    contradiction = misfit(jobs)
    if contradiction is not None:
        job, why = contradiction
        raise InputError(f"job {work.numbers[job]} {why}")
    found = run_jobs(
        jobs,
        pool.nodes,
        mechanism,
        overhead,
        records=True,
        progress=progress,
        after_event=check_world if check else None,
    )
    last = _last(found.stretches, jobs.count)
    often = np.bincount(found.stretches.job, minlength=jobs.count)[found.stretches.job]
    return PoolRun(
        start_us=found.column("start_us"),
        end_us=found.column("end_us"),
        places=Places.of_parts(last.part_at[:-1], last.part_at[1:], last.node, last.mask),
        events=found.events,
        engine_cpu_s=found.engine_cpu_s,
        stretches=_chosen(found.stretches, np.flatnonzero(often > 1)),
        books=_books(found),
    )


def _last(stretches: AllocationIntervals, count: int) -> AllocationIntervals:
    """Return the last stretch of each of ``count`` jobs, in their order."""
    last = np.zeros(count, dtype=np.int64)
    last[stretches.job] = np.arange(len(stretches))
    return _chosen(stretches, last)


def _chosen(stretches: AllocationIntervals, rows: Ints) -> AllocationIntervals:
    """Return some of the stretches."""
    nodes = stretches.nodes[rows]
    within = np.arange(nodes.sum()) - np.repeat(np.cumsum(nodes) - nodes, nodes)
    parts = np.repeat(stretches.part_at[rows], nodes) + within
    return AllocationIntervals(
        job=stretches.job[rows],
        from_us=stretches.from_us[rows],
        to_us=stretches.to_us[rows],
        why=stretches.why[rows],
        nodes=nodes,
        setup_us=stretches.setup_us[rows],
        lost_us=stretches.lost_us[rows],
        node=stretches.node[parts],
        mask=stretches.mask[parts],
    )


def _books(found: HybridOutcome) -> Accounting:
    nothing = np.zeros(len(found.column("attempts")), dtype=np.int64)
    return Accounting(
        preemptions=found.column("preemptions"),
        starts=found.column("attempts"),
        given_up=nothing,
        lost_us=found.column("lost_us"),
        spent_setup_us=found.column("setup_us"),
        useful_node_us=found.column("useful_node_us"),
        lost_node_us=found.column("lost_node_us"),
        setup_node_us=found.column("setup_node_us"),
        save_node_us=found.column("save_node_us") + found.column("warned_node_us"),
        fresh_node_us=found.column("fresh_node_us"),
    )


def check_world(world: HybridTables) -> None:
    """Check a state in plain Python.

    Raises
    ------
    InvariantError
        Something does not hold; the message says what, and when.
    """
    try:
        _check_nodes(world)
        _check_jobs(world)
        _check_books(world)
    except InvariantError as error:
        clock = world.clock[0]
        raise InvariantError(f"after {clock.events} events, at {clock.now_us} us: {error}") from error


def _want(holds: bool, message: str) -> None:
    if not holds:
        raise InvariantError(message)


def _check_nodes(world: HybridTables) -> None:
    """Every node has one job, one lease and one guest at most, and all counts are those of the nodes."""
    held: Counter[int] = Counter()
    plain: Counter[int] = Counter()
    leased: Counter[int] = Counter()
    got: Counter[int] = Counter()
    free = 0
    for node in range(world.rules[0].nodes):
        entry = world.nodes[node]
        if entry.guest != NO_JOB:
            _want(entry.job != NO_JOB, f"node {node} has a guest and no job")
            held[entry.guest] += 1
        if entry.lease != NO_JOB:
            leased[entry.lease] += 1
            got[entry.lease] += entry.job == NO_JOB
        if entry.job != NO_JOB:
            held[entry.job] += 1
            plain[entry.job] += entry.lease == NO_JOB
        free += entry.job == NO_JOB and entry.lease == NO_JOB
    _want(free == world.clock[0].free, f"{free} nodes are free, not {world.clock[0].free}")
    for job in range(world.rules[0].jobs):
        asker = world.jobs[job]
        _want(asker.nodes == held[job], f"job {job} holds {held[job]} nodes, not {asker.nodes}")
        _want(asker.plain == plain[job], f"job {job} holds {plain[job]} nodes for itself, not {asker.plain}")
        _want(asker.got == got[job], f"{got[job]} free nodes are reserved for {job}, not {asker.got}")
        if leased[job]:
            _want(asker.status in (COMING, WAITING, GATHERING), f"job {job} has leases and runs")
        if asker.status == COMING and asker.notice == KNOWN:
            _want(
                asker.missing == asker.asked - leased[job],
                f"job {job} misses {asker.asked - leased[job]}, not {asker.missing}",
            )


def _check_jobs(world: HybridTables) -> None:
    active = [world.active[place] for place in range(world.clock[0].active)]
    queue = [world.queue[place] for place in range(world.clock[0].waiting)]
    _want(active == sorted(set(active)), f"the jobs that hold nodes are out of order: {active}")
    _want(len(queue) == len(set(queue)), f"a job waits twice: {queue}")
    for job in range(world.rules[0].jobs):
        entry = world.jobs[job]
        _want((entry.status in _HOLDING) == (job in active), f"job {job} holds nodes, or not, unknown to all")
        _want((entry.status == WAITING) == (job in queue), f"job {job} waits, or not, unknown to all")
        if entry.status == RUNNING:
            low = entry.least if entry.kind == MALLEABLE else entry.asked
            _want(low <= entry.nodes <= entry.asked, f"job {job} runs on {entry.nodes} nodes")
        if entry.kind == ON_DEMAND:
            _want(entry.preemptions == 0, f"job {job} is on demand and was preempted")


def _check_books(world: HybridTables) -> None:
    """Check that what was held is useful, lost, set-up, saving, warning, or not decided yet."""
    for job in range(world.rules[0].jobs):
        entry = world.jobs[job]
        spent = entry.useful_node_us + entry.lost_node_us + entry.setup_node_us + entry.save_node_us
        spent += entry.warned_node_us + entry.fresh_node_us
        _want(spent == entry.held_node_us, f"job {job} held {entry.held_node_us} node us and spent {spent}")
