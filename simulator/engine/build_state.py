"""Makes the state that a run begins with, from jobs as arrays, a pool of nodes and built-in rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foundation.errors import InputError
from simulator.cores.core_slots import new_links
from simulator.cores.slurm_rows import new_rows
from simulator.jit.field_records import Ints, RecordTable, StateAllocator
from simulator.model.jobs import JobLifecycle, JobLifecycles, PoolJobs
from simulator.model.system import FAR_US, NodePool, Outage
from simulator.sharing import SharingTables
from simulator.state.engine_state import (
    NEVER,
    ONE,
    DependencyRecord,
    EngineClockRecord,
    EngineJobRecord,
    EngineRulesRecord,
    EngineState,
    ListRecord,
    NodeClassRecord,
    PartRecord,
    PieceRecord,
    Rows,
    RunRecord,
)
from simulator.state.lifecycle_state import (
    IntervalRecord,
    LifecycleClock,
    LifecycleRecord,
    LifecycleTables,
    Log,
    LoggedPart,
    NodeLifecycleRecord,
    OutageRecord,
    TimerRecord,
)
from simulator.state.node_sets import WORD_BITS, full_set, new_ranking

AFTER_FAILURE = ("checkpoint", "scratch", "give-up")
"""How a job goes on whose node has failed; the places are those of ``life_state.FROM_CHECKPOINT`` and on."""

MOST_UNITS = 1 << 62
"""More units of work than this are not counted."""

_LEAST_SETS = 64
_SET_WORDS = 1 << 22
"""How much memory classes of several nodes may take; where there is none left, nodes are classes of one."""

_SPARE_STRETCHES = 4096
_SPARE_PARTS = 1 << 16
"""How much of the log may be full before it is emptied, besides what one event can log."""


def build_lifecycles(
    make: StateAllocator,
    lifecycles: JobLifecycles,
    nodes: Ints,
    pool: NodePool,
    outages: Sequence[Outage] = (),
    after_failure: str = "checkpoint",
) -> LifecycleTables:
    """Return the tables at the beginning of a run.

    Parameters
    ----------
    make
        Makes tables for compiled kernels or for plain Python.
    lifecycles, nodes
        What each job can do, and the nodes that it asks for.
    pool
        The nodes.
    outages
        When they fail, by index in the pool.
    after_failure
        One of ``AFTER_FAILURE``.
    """
    slots = pool.nodes * pool.cores * pool.multiplicity
    stretches = 2 * slots + _SPARE_STRETCHES
    parts = 2 * slots + _SPARE_PARTS
    count = len(lifecycles)
    timers = 4 * count + _SPARE_STRETCHES
    rate_at, rates = _rates(lifecycles)
    is_rigid = rate_at == NEVER
    asked_rate = _ints(rates or [1])[np.where(is_rigid, 0, rate_at + nodes - 1)]
    events = sorted(
        [(outage.down_us, 1, outage.node) for outage in outages]
        + [(outage.up_us, 0, outage.node) for outage in outages if outage.up_us < FAR_US]
    )
    return LifecycleTables(
        clock=make.table(
            LifecycleClock,
            1,
            unfinished=count,
            outages=len(events),
            after_failure=AFTER_FAILURE.index(after_failure),
        ),
        jobs=make.table(
            LifecycleRecord,
            count,
            asked=nodes,
            rate_at=rate_at,
            rate=np.where(is_rigid, 1, asked_rate),
            setup_us=lifecycles.column(lambda life: life.setup_us),
            every_us=lifecycles.column(
                lambda life: NEVER if life.checkpoint_every_us is None else life.checkpoint_every_us
            ),
            checkpoint_us=lifecycles.column(lambda life: life.checkpoint_us),
        ),
        nodes=make.table(NodeLifecycleRecord, pool.nodes),
        rates=make.row(rates or [1]),
        outages=make.table(
            OutageRecord,
            len(events),
            at_us=_ints(at_us for at_us, _, _ in events),
            goes_down=_ints(goes_down for _, goes_down, _ in events),
            node=_ints(node for _, _, node in events),
        ),
        timers=make.table(TimerRecord, timers, heap=np.arange(timers)),
        log=Log(
            stretches=make.table(IntervalRecord, stretches, lazily=True),
            parts=make.table(LoggedPart, parts, lazily=True),
            mask=make.grid(parts, len(full_set(pool.cores))),
        ),
    )


def _rates(lifecycles: JobLifecycles) -> tuple[Ints, list[int]]:
    """Return where the rates of each job begin (``NEVER``: it is rigid), and all of them."""
    begins: dict[tuple[int, ...], int] = {}
    rates: list[int] = []

    def begin(life: JobLifecycle) -> int:
        if life.sizes is None:
            return NEVER
        if life.sizes.rates not in begins:
            begins[life.sizes.rates] = len(rates)
            rates.extend(life.sizes.rates)
        return begins[life.sizes.rates]

    return lifecycles.column(begin), rates


def check_lifecycles(
    lifecycles: JobLifecycles, nodes: Ints, phase_at: Ints, run_us: Ints, scale: int
) -> None:
    """Refuse lifecycles that contradict themselves, or that are too long to be counted.

    ``run_us`` is the longer of the run time and the request of each job; ``scale`` the model's units of work.

    Raises
    ------
    InputError
        The message names the job by its index.
    """
    soft = lifecycles.column(lambda life: life.sizes is not None)
    least = lifecycles.column(lambda life: 1 if life.sizes is None else life.sizes.least)
    most = lifecycles.column(
        lambda life: MOST_UNITS if life.sizes is None else min(life.sizes.most, len(life.sizes.rates))
    )
    slowest = lifecycles.column(lambda life: 1 if life.sizes is None else min(life.sizes.rates, default=0))
    rate = lifecycles.column(lambda life: 1 if life.sizes is None else max(life.sizes.rates, default=0))
    pauses_us = lifecycles.column(
        lambda life: max(life.setup_us, life.checkpoint_us, life.checkpoint_every_us or 0)
    )
    is_past = lifecycles.column(
        lambda life: min(life.setup_us, life.checkpoint_us) < 0 or (life.checkpoint_every_us or 1) < 1
    )
    longest_us = np.maximum(run_us, pauses_us)
    for bad, what in (
        ((least < 1) | (least > nodes) | (nodes > most) | (slowest < 1), "{} nodes are not among its sizes"),
        ((soft > 0) & (np.diff(phase_at) > 2), "is malleable and interactive: it can only be one of them"),
        (is_past > 0, "its set-up or its checkpoints take negative time"),
        (
            longest_us >= MOST_UNITS // scale // np.maximum(rate, 1),
            "runs for too long for its speed-up to be counted",
        ),
    ):
        if bad.any():
            job = int(np.flatnonzero(bad)[0])
            raise InputError(f"job {job}: {what.format(nodes[job])}")


def _ints(values: object) -> Ints:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]


_UNLIMITED_KIB = 1 << 60


def _job_table(make: StateAllocator, jobs: PoolJobs) -> RecordTable[EngineJobRecord]:
    """Return the jobs, and one record more, in which the last job's phases and parts end."""

    def ended(values: Ints) -> Ints:
        return np.concatenate((values, np.zeros(1, dtype=np.int64)))

    return make.table(
        EngineJobRecord,
        jobs.count + 1,
        submit_us=ended(jobs.submit_us),
        request_us=ended(jobs.requested_us),
        nodes=ended(jobs.nodes),
        cores=ended(jobs.cores),
        memory_kib=ended(jobs.memory_kib),
        app=ended(jobs.app),
        shape=ended(jobs.shapes),
        phase_at=jobs.phase_at,
        part_at=jobs.part_at,
        part_end=ended(jobs.part_at[:-1] + jobs.nodes),
        index=np.arange(jobs.count + 1),
    )


def build_state(
    make: StateAllocator,
    jobs: PoolJobs,
    pool: NodePool,
    sharing: SharingTables,
    *,
    with_rows: bool,
    node_memory_kib: int | None = None,
    lifecycles: LifecycleTables | None = None,
    together: bool = False,
) -> EngineState:
    """Return the state at the beginning of a run.

    Parameters
    ----------
    make
        Makes tables for compiled kernels or for plain Python.
    jobs
        What arrives, each job small enough to fit on the idle pool.
    pool
        The nodes.
    sharing
        The sharing model.
    with_rows
        Whether Slurm's rows are kept, if cores are shared.
    node_memory_kib
        Memory of each node; None is unlimited.
    lifecycles
        What is kept of jobs that do more than run once.
    together
        See ``RunRules``.

    Raises
    ------
    InputError
        A job's run time or request is too long to be counted in the model's units of work.
    """
    _check_lengths(jobs, sharing.scale)
    count, nodes, cores, slots = jobs.count, pool.nodes, pool.cores, pool.multiplicity
    valid, node_set = full_set(cores), full_set(nodes)
    nodes_differ = bool((sharing.factors != ONE).any())
    by_rows = with_rows and slots > 1
    parts = int(jobs.part_at[-1]) + (nodes if jobs.has_sizes else 0)
    most_pieces = min(nodes * cores * slots, parts) + nodes
    memory_kib = _UNLIMITED_KIB if node_memory_kib is None else node_memory_kib
    waits = 0 if jobs.dependencies is None else jobs.dependencies.count
    return EngineState(
        rules=make.table(
            EngineRulesRecord,
            1,
            scale=sharing.scale,
            nodes_differ=int(nodes_differ),
            alike=int(sharing.excess is None and not nodes_differ),
            jobs=count,
            nodes=nodes,
            cores=cores,
            slots=slots,
            together=int(together),
        ),
        clock=make.table(
            EngineClockRecord,
            1,
            arrived=waits,
            unreleased=waits,
            classes=nodes if nodes_differ else 1,
            sets=int(not nodes_differ),
        ),
        jobs=_job_table(make, jobs),
        runs=make.table(RunRecord, count + 1, queue_next=count, queue_prev=count),
        lists=make.table(ListRecord, count + 1, arrival=_arrivals(jobs)),
        classes=_classes(make, pool, sharing.factors, memory_kib, nodes_differ),
        class_of=make.row(np.arange(nodes) if nodes_differ else np.zeros(nodes, dtype=np.int64)),
        sets=make.filled(_first_sets(node_set)),
        pieces=make.table(PieceRecord, most_pieces, lazily=True),
        parts=make.table(PartRecord, parts),
        phase_us=make.row(jobs.phase_us),
        open_nodes=make.row(np.full(cores + 1, nodes, dtype=np.int64)),
        listed=make.grid(nodes, cores * slots, short=True),
        valid=make.row(valid),
        occupied=make.grid(nodes, slots, len(valid)),
        busy=make.grid(nodes, slots, len(valid)) if slots > 1 else None,
        then_stack=make.grid(nodes, slots, len(valid)),
        piece_cores=make.grid(most_pieces, len(valid)),
        mask=make.grid(parts, len(valid)),
        speeds=make.row(sharing.speeds),
        excess=None if sharing.excess is None else make.filled(sharing.excess),
        ranking=new_ranking(make, slots + 1, nodes, cores)
        if by_rows
        else new_ranking(make, 1, nodes, cores * slots),
        chosen=make.zeros(len(node_set)),
        barred=make.zeros(len(node_set)),
        rows=_rows(make, count, pool) if by_rows else None,
        links=new_links(make, count, nodes * cores, slots) if slots > 1 else None,
        dependencies=_dependencies(make, jobs),
        lifecycles=lifecycles,
    )


def _classes(
    make: StateAllocator, pool: NodePool, factors: Ints, memory_kib: int, nodes_differ: bool
) -> RecordTable[NodeClassRecord]:
    """Return the classes at the beginning: one of all nodes, or one of each."""
    nodes, place = pool.nodes, np.arange(pool.nodes)
    has_set = (place == 0) & (nodes > 1) & (not nodes_differ)
    return make.table(
        NodeClassRecord,
        nodes,
        free=pool.cores,
        free_kib=memory_kib,
        factor=factors,
        nodes=1 if nodes_differ else np.where(place == 0, nodes, 0),
        first=place if nodes_differ else 0,
        row=np.where(has_set, 0, NEVER),
        high=np.where(has_set, (nodes - 1) // WORD_BITS, 0),
    )


def _first_sets(node_set: Ints) -> Ints:
    """Return as many sets of nodes as there may be classes of several, the first with all nodes."""
    words = len(node_set)
    sets = np.zeros((min(words * WORD_BITS // 2 + 1, max(_LEAST_SETS, _SET_WORDS // words)), words), np.int64)
    sets[0] = node_set
    return sets


def _rows(make: StateAllocator, jobs: int, pool: NodePool) -> Rows:
    nodes, cores, slots = pool.nodes, pool.cores, pool.multiplicity
    return new_rows(
        make,
        jobs,
        min(jobs, nodes * cores * slots),
        slots,
        make.grid(slots, nodes, len(full_set(cores))),
        make.grid(slots + 1, nodes),
    )


def _arrivals(jobs: PoolJobs) -> Ints:
    """Return the jobs by submit time, then index, after a zero for each that depends on another."""
    order = np.argsort(jobs.submit_us, kind="stable")
    if jobs.dependencies is not None:
        waits = jobs.dependencies.preceding != NEVER
        order = np.concatenate((np.zeros(waits.sum(), dtype=np.int64), order[~waits[order]]))
    return np.concatenate((order, np.zeros(1, dtype=np.int64)))


def _dependencies(make: StateAllocator, jobs: PoolJobs) -> RecordTable[DependencyRecord]:
    """Return the jobs that depend on each, by index; one record of none where no job depends on another."""
    given = jobs.dependencies
    if given is None:
        return make.table(DependencyRecord, 1)
    waits = np.flatnonzero(given.preceding != NEVER)
    waits = waits[np.argsort(given.preceding[waits], kind="stable")]
    before = given.preceding[waits]
    begins = np.diff(before, prepend=NEVER) != 0
    first, following = (np.full(jobs.count + 1, NEVER, dtype=np.int64) for _ in range(2))
    first[before[begins]] = waits[begins]
    following[waits[:-1][~begins[1:]]] = waits[1:][~begins[1:]]
    think_us = np.append(given.think_us, NEVER)
    return make.table(DependencyRecord, jobs.count + 1, first=first, next=following, think_us=think_us)


def _check_lengths(jobs: PoolJobs, scale: int) -> None:
    longest_us = int(max(jobs.requested_us.max(initial=0), jobs.run_us.max(initial=0)))
    if longest_us * scale >= MOST_UNITS:
        raise InputError(
            f"a job runs or asks for {longest_us / 1e6:g} s, too long for {scale} units of work a "
            "microsecond: choose an overhead with fewer decimals, or cut the request"
        )
