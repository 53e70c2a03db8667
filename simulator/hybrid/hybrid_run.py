"""Runs the jobs of one pool through the loop, compiled or plain, and tells what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from foundation.errors import InputError
from foundation.interruption import ShortCalls
from simulator.eviction import EvictableJob, EvictionChoice, cheapest
from simulator.hybrid.hybrid_build import Mechanism, build_world
from simulator.hybrid.loop.hybrid_loop import STUCK, run
from simulator.hybrid.loop.hybrid_progress import overhead_at
from simulator.hybrid.loop.hybrid_state import NO_JOB, HybridTables
from simulator.hybrid.loop.ondemand_jobs import can_give
from simulator.jit.compilation import Compilation, Compiled, compilation_wanted
from simulator.jit.field_records import IntegerGrid, Ints, StateAllocator, column
from simulator.model.jobs import PoolJobs
from simulator.state.allocations import AllocationIntervals, joined, words_of
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
            _name_victims(plain, int(plain.clock[0].asking))
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


def _name_victims(world: HybridTables, demand: int) -> None:
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
