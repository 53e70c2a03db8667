"""A hybrid run as the run of any simulated pool."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from foundation.errors import InputError, UsageError
from simulator.engine.kernels.field_records import Ints
from simulator.engine.run import PoolRun, PoolWork
from simulator.engine.state.life_books import Books
from simulator.engine.state.life_log import Stretches
from simulator.engine.state.node_ranges import Places
from simulator.hybrid.hybrid_build import Mechanism, misfit
from simulator.hybrid.hybrid_invariants import check_world
from simulator.hybrid.hybrid_run import Outcome, run_jobs


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
    told = misfit(jobs)
    if told is not None:
        job, why = told
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


def _last(stretches: Stretches, count: int) -> Stretches:
    """Return the last stretch of each of ``count`` jobs, in their order."""
    last = np.zeros(count, dtype=np.int64)
    last[stretches.job] = np.arange(len(stretches))
    return _chosen(stretches, last)


def _chosen(stretches: Stretches, rows: Ints) -> Stretches:
    """Return some of the stretches."""
    nodes = stretches.nodes[rows]
    within = np.arange(nodes.sum()) - np.repeat(np.cumsum(nodes) - nodes, nodes)
    parts = np.repeat(stretches.part_at[rows], nodes) + within
    return Stretches(
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


def _books(found: Outcome) -> Books:
    nothing = np.zeros(len(found.column("lives")), dtype=np.int64)
    return Books(
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
