"""A hybrid run as the run of any simulated pool, and what must hold of it after every event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from foundation.errors import InputError, UsageError
from simulator.engine.engine_invariants import InvariantError
from simulator.engine.pool_run import PoolRun, PoolWork
from simulator.hybrid.hybrid_build import Mechanism, misfit
from simulator.hybrid.hybrid_run import HybridOutcome, run_jobs
from simulator.hybrid.loop.hybrid_state import (
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
)
from simulator.jit.field_records import Ints
from simulator.state.allocations import AllocationIntervals, Places
from simulator.state.lifecycle_state import Accounting

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
        raise UsageError("hybrid policies give whole nodes to jobs: use --multiplicity 1")
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
    nothing = np.zeros(len(found.column("lives")), dtype=np.int64)
    return Accounting(
        preemptions=found.column("preemptions"),
        starts=found.column("lives"),
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
