"""Makes the state of a run from jobs as arrays, a pool of nodes and built-in rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foundation.errors import InputError
from simulator.cores.core_slots import new_links
from simulator.cores.slurm_rows import new_rows
from simulator.engine.building.build_lifecycles import MOST_UNITS, most_nodes, sizes_of
from simulator.jit.field_records import Ints, RecordTable, StateAllocator
from simulator.model.jobs import JobLifecycle, JobLives
from simulator.model.system import NodePool
from simulator.sharing import SharingTables
from simulator.state.engine_state import (
    ONE,
    EngineClockRecord,
    EngineJobRecord,
    EngineNodeRecord,
    EngineRulesRecord,
    EngineState,
    ListRecord,
    PartRecord,
    Rows,
    RunRecord,
)
from simulator.state.lifecycle_state import Lives
from simulator.state.node_sets import full_set, new_ranking

_UNLIMITED_KIB = 1 << 60


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolJobs:
    """Jobs of a pool as arrays of length J, by job number; see ``SimulatedJob`` for what they mean.

    ``phase_us`` holds the periods of job ``j`` from ``phase_at[j]`` to ``phase_at[j + 1]``: idle, busy, idle,
    ..., of which only the first may be zero. ``lives`` are the jobs' lifecycles, where they do more than run
    once; None: nothing. ``user`` is -1 where it is not known.
    """

    submit_us: Ints
    requested_us: Ints
    nodes: Ints
    cores: Ints
    memory_kib: Ints
    app: Ints
    phase_at: Ints
    phase_us: Ints
    lives: Sequence[JobLifecycle] | None = None
    user: Ints | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.submit_us)

    @property
    def has_sizes(self) -> bool:
        """Whether a job is malleable; then spare parts, behind all others, are for nodes that it gets."""
        return self.lives is not None and any(life.sizes is not None for life in self.every_life.kinds)

    @property
    def every_life(self) -> JobLives:
        """What each job can do, in any case."""
        return JobLives.of(self.lives, self.count)

    @property
    def run_us(self) -> Ints:
        """How long each job runs on dedicated cores, all its phases together."""
        return np.diff(np.concatenate(([0], np.cumsum(self.phase_us)))[self.phase_at])

    @property
    def part_at(self) -> Ints:
        """Where the parts of each job begin, and the number of parts; shape (jobs + 1,)."""
        return np.concatenate(
            (np.zeros(1, dtype=np.int64), np.cumsum(most_nodes(self.every_life, self.nodes)))
        )

    @property
    def shapes(self) -> Ints:
        """A number for each job, the same for all of the same shape, memory, class and sizes."""
        shape = sizes_of(self.every_life)
        for values in (self.nodes, self.cores, self.memory_kib, self.app):
            shape = np.unique(shape * (values.max(initial=0) + 1) + values, return_inverse=True)[1]
        return shape


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
    lives: Lives | None = None,
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
    lives
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
    memory_kib = _UNLIMITED_KIB if node_memory_kib is None else node_memory_kib
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
        clock=make.table(EngineClockRecord, 1),
        jobs=_job_table(make, jobs),
        runs=make.table(RunRecord, count + 1, queue_next=count, queue_prev=count),
        lists=make.table(ListRecord, count + 1, arrival=_arrivals(jobs)),
        nodes=make.table(EngineNodeRecord, nodes, free=cores, free_kib=memory_kib, factor=sharing.factors),
        parts=make.table(PartRecord, parts),
        phase_us=make.row(jobs.phase_us),
        open_nodes=make.row(np.full(cores + 1, nodes, dtype=np.int64)),
        listed=make.grid(nodes, cores * slots, short=True),
        valid=make.row(valid),
        occupied=make.grid(nodes, slots, len(valid)),
        busy=make.grid(nodes, slots, len(valid)) if slots > 1 else None,
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
        lives=lives,
    )


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
    """Return the jobs by submit time, then index, and one zero more."""
    return np.concatenate((np.argsort(jobs.submit_us, kind="stable"), np.zeros(1, dtype=np.int64)))


def _check_lengths(jobs: PoolJobs, scale: int) -> None:
    longest_us = int(max(jobs.requested_us.max(initial=0), jobs.run_us.max(initial=0)))
    if longest_us * scale >= MOST_UNITS:
        raise InputError(
            f"a job runs or asks for {longest_us / 1e6:g} s, too long for {scale} units of work a "
            "microsecond: choose an overhead with fewer decimals, or cut the request"
        )
