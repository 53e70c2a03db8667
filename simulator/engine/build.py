"""Makes the state of a run from jobs as arrays, a pool of nodes and built-in rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from osub.errors import InputError
from simulator.engine.state import (
    APP,
    ARRIVAL,
    CLOCK_FIELDS,
    CORES,
    FACTOR,
    FREE,
    FREE_KIB,
    JOB_FIELDS,
    KIND,
    LLN,
    MEMORY_KIB,
    NODE_FIELDS,
    NODES,
    NODES_DIFFER,
    ONE,
    PART_AT,
    PART_FIELDS,
    PHASE_AT,
    PLACEMENT,
    POLICY,
    REQUEST_US,
    RULE_FIELDS,
    SCALE,
    SHAPE,
    SUBMIT_US,
    Ints,
    State,
    full_set,
    run_table,
)
from simulator.sharing.model import SharingTables
from simulator.system import Pool

_UNLIMITED_KIB = 1 << 60
_MOST_UNITS = 1 << 62


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolJobs:
    """The jobs of a pool as arrays of length J, in order of job number; see ``Job`` for what they mean.

    ``phase_us`` holds the periods of job ``j`` from ``phase_at[j]`` to ``phase_at[j + 1]``: idle, busy, idle,
    ..., of which only the first may be zero.
    """

    submit_us: Ints
    requested_us: Ints
    nodes: Ints
    cores: Ints
    memory_kib: Ints
    app: Ints
    phase_at: Ints
    phase_us: Ints

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.submit_us)


def _job_table(jobs: PoolJobs) -> Ints:
    count = jobs.count
    table = np.zeros((JOB_FIELDS, count + 1), dtype=np.int64)
    for field, values in (
        (SUBMIT_US, jobs.submit_us),
        (REQUEST_US, jobs.requested_us),
        (NODES, jobs.nodes),
        (CORES, jobs.cores),
        (MEMORY_KIB, jobs.memory_kib),
        (APP, jobs.app),
    ):
        table[field, :count] = values
    table[PHASE_AT] = jobs.phase_at
    table[PART_AT, 1:] = np.cumsum(jobs.nodes)
    shape = np.zeros(count, dtype=np.int64)
    for values in (jobs.nodes, jobs.cores, jobs.memory_kib, jobs.app):
        shape = np.unique(shape * (values.max(initial=0) + 1) + values, return_inverse=True)[1]
    table[SHAPE, :count] = shape
    table[ARRIVAL, :count] = np.argsort(jobs.submit_us, kind="stable")
    return table


def build_state(
    jobs: PoolJobs,
    pool: Pool,
    sharing: SharingTables,
    policy: int,
    placement: int,
    node_memory_kib: int | None = None,
) -> State:
    """Return the state at the beginning of a run.

    Parameters
    ----------
    jobs
        What arrives, each job small enough to fit on the idle pool.
    pool
        The nodes.
    sharing
        The sharing model.
    policy, placement
        Codes of the built-in rules (see ``simulator.engine.state``); ignored where a plain Python rule is
        used.
    node_memory_kib
        Memory of each node; None is unlimited.

    Raises
    ------
    InputError
        A job's run time or request is too long to be counted in the model's units of work.
    """
    busy_us = np.diff(np.concatenate(([0], np.cumsum(jobs.phase_us)))[jobs.phase_at])
    longest_us = int(max(jobs.requested_us.max(initial=0), busy_us.max(initial=0)))
    if longest_us * sharing.scale >= _MOST_UNITS:
        raise InputError(
            f"a job runs or asks for {longest_us / 1e6:g} s, too long for {sharing.scale} units of work a "
            "microsecond: choose an overhead with fewer decimals, or cut the request"
        )
    count, nodes, cores, slots = jobs.count, pool.nodes, pool.cores, pool.multiplicity
    valid, node_set, loads = full_set(cores), full_set(nodes), full_set(cores * slots + 1)
    words = len(valid)
    table = _job_table(jobs)
    rules = np.zeros(RULE_FIELDS, dtype=np.int64)
    rules[POLICY], rules[PLACEMENT], rules[KIND], rules[SCALE] = (
        policy,
        placement,
        sharing.kind,
        sharing.scale,
    )
    rules[NODES_DIFFER] = bool((sharing.factors != ONE).any())
    node_table = np.zeros((NODE_FIELDS, nodes), dtype=np.int64)
    node_table[FREE] = cores
    node_table[FREE_KIB] = _UNLIMITED_KIB if node_memory_kib is None else node_memory_kib
    node_table[FACTOR] = sharing.factors
    by_load = np.zeros((cores * slots + 1, len(node_set)), dtype=np.int64)
    by_load[0] = node_set
    load_size = np.zeros(cores * slots + 1, dtype=np.int64)
    load_size[0] = nodes
    loads[:] = 0
    loads[0] = 1
    parts = int(table[PART_AT, count])
    rows = slots if placement == LLN and slots > 1 else 0
    return State(
        rules=rules,
        clock=np.zeros(CLOCK_FIELDS, dtype=np.int64),
        jobs=table,
        phase_us=jobs.phase_us,
        run=run_table(count),
        nodes=node_table,
        roomy=np.full(cores + 1, nodes, dtype=np.int64),
        listed=np.zeros((nodes, cores * slots), dtype=np.int32),
        valid=valid,
        occupied=np.zeros((nodes, slots, words), dtype=np.int64),
        busy=np.zeros((nodes if slots > 1 else 0, slots, words), dtype=np.int64),
        parts=np.zeros((PART_FIELDS, parts), dtype=np.int32),
        mask=np.zeros((parts, words), dtype=np.int64),
        speeds=sharing.speeds,
        excess=sharing.excess,
        by_load=by_load,
        load_size=load_size,
        loads=loads,
        chosen=np.zeros(len(node_set), dtype=np.int64),
        barred=np.zeros(len(node_set), dtype=np.int64),
        rows=np.zeros((rows, nodes, words), dtype=np.int64),
        row_order=np.arange(rows, dtype=np.int64),
        row_kept=np.arange(rows, dtype=np.int64),
        row_size=np.zeros(rows, dtype=np.int64),
    )
