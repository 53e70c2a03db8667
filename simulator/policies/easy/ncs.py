"""Backfilling as NCS has it, the thesis's simulator (docs/mechanisms.md).

(1) By a plan, in which every job goes on at its present multiplicity up to its requested end, the head has a
start and nodes. One of these is refused to a candidate that would raise its multiplicity with the head,
unless the candidate ends by then, there and on every other node that takes it. (2) A candidate is refused
that raises the multiplicity of a victim that ends by the head's start; (3) after such a refusal, in the same
pass, every candidate with at least its processors and its requested time. (4) While several jobs end at one
instant there is no pass but after the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.cores.core_slots import overlap, piece_multiplicity
from simulator.cores.node_fitting import fits
from simulator.jit.compilation import kernel, kernel_state
from simulator.jit.field_records import IntegerRow, RecordTable, StateAllocator
from simulator.lifecycle.job_progress import done_since
from simulator.lifecycle.segments import asks_us, rate_of
from simulator.model.system import FAR_US
from simulator.policies.easy.reservation import (
    ReservationProjection,
    end_first,
    occupy_cores,
    release_cores,
    show_cluster,
)
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.event_queue import enter_agenda
from simulator.state.node_sets import flip, has


@dataclass(slots=True, eq=False)
class NcsRecord:
    """Which of rules 2 to 4 hold, and how many bounds are known in this pass."""

    victims: int = 0
    bounds: int = 0
    ends: int = 0
    known: int = 0


@dataclass(slots=True, eq=False)
class BoundRecord:
    """Processors and requested time from which on candidates are refused."""

    procs: int = 0
    request_us: int = 0


@kernel_state
class Ncs(NamedTuple):
    """The rules, and the bounds of the present pass."""

    rules: RecordTable[NcsRecord]
    bounds: RecordTable[BoundRecord]


def new_ncs(make: StateAllocator, jobs: int, rules: tuple[bool, bool, bool]) -> Ncs:
    """Return the rules that hold, for a run of so many jobs."""
    victims, bounds, ends = (int(rule) for rule in rules)
    return Ncs(
        rules=make.table(NcsRecord, 1, victims=victims, bounds=bounds, ends=ends),
        bounds=make.table(BoundRecord, jobs + 1),
    )


@kernel
def ends_follow(state: EngineState, ncs: Ncs | None) -> bool:
    """Return whether another job ends at this instant, and passes wait for the last."""
    if ncs is None:
        return False
    if not ncs.rules[0].ends or state.clock[0].agenda == 0:
        return False
    run = state.runs[state.lists[0].agenda]
    return run.last == 1 and run.next_us == state.clock[0].now_us


@kernel
def has_plan(ncs: Ncs | None) -> bool:
    """Return whether candidates are tried by NCS's plan."""
    if ncs is None:  # noqa: SIM103
        return False
    return True


@kernel
def forget_bounds(ncs: Ncs | None) -> None:
    """Begin a pass."""
    if ncs is not None:
        ncs.rules[0].known = 0


@kernel
def is_out_of_bounds(state: EngineState, ncs: Ncs | None, job: int) -> bool:
    """Return whether a candidate no larger and no longer was refused for its victims in this pass."""
    if ncs is None:
        return False
    asked = state.jobs[job]
    procs = asked.nodes * asked.cores
    for place in range(ncs.rules[0].known):
        bound = ncs.bounds[place]
        if procs >= bound.procs and asked.request_us >= bound.request_us:
            return True
    return False


@kernel
def _job_multiplicity(state: EngineState, job: int) -> int:
    """Return the most jobs on a core of the pieces of ``job``."""
    most = 0
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        most = piece_multiplicity(state.occupied, state.piece_cores, held.node_class, piece, most)
        piece = held.next
    return most


@kernel
def _jobs_on_common(state: EngineState, a: int, b: int, node_class: int) -> int:
    """Return the most jobs on a core that two pieces have in common."""
    jobs = 0
    for word in range(state.piece_cores.shape[1]):
        common = state.piece_cores[a, word] & state.piece_cores[b, word]
        while jobs < state.rules[0].slots and state.occupied[node_class, jobs, word] & common:
            jobs += 1
    return jobs


@kernel
def _planned_us(state: EngineState, job: int, multiplicity: int) -> int:
    """Return how long ``job``, which waits or runs, asks to go on at this multiplicity."""
    run = state.runs[job]
    if run.running_at == NEVER:
        return multiplicity * asks_us(state, state.lifecycles, job)
    unit = state.rules[0].scale * rate_of(state.lifecycles, job)
    left = run.request_left - done_since(run, state.clock[0].now_us)
    return multiplicity * ((left + unit - 1) // unit)


@kernel
def plan_start(state: EngineState, ahead: ReservationProjection, head: int) -> None:
    """Find the earliest start of ``head`` by the plan, and the cluster at it."""
    known, base, clock = ahead.head[0], ahead.base, ahead.base.clock[0]
    show_cluster(state, ahead, head)
    for place in range(state.clock[0].active):
        job = state.lists[place].running
        base.runs[job].next_us = clock.now_us + _planned_us(state, job, _job_multiplicity(state, job))
        enter_agenda(base, job)
    while known.fitting < state.jobs[head].nodes and clock.agenda > 0:
        instant = base.runs[base.lists[0].agenda].next_us
        while clock.agenda > 0 and base.runs[base.lists[0].agenda].next_us == instant:
            release_cores(state, ahead, head, end_first(state, base))
    known.start_us = clock.now_us if known.fitting >= state.jobs[head].nodes else FAR_US


@kernel
def _multiplicity(state: EngineState, slots: int) -> int:
    """Return the most jobs on a core of a node with so many occupied slots, evenly spread."""
    return (slots + state.rules[0].cores - 1) // state.rules[0].cores


@kernel
def _ends_by_start(state: EngineState, ahead: ReservationProjection, job: int, slots: int) -> bool:
    """Return whether ``job`` would end by the head's start on nodes with so many occupied slots."""
    multiplicity = _multiplicity(state, slots + state.jobs[job].cores)
    return state.clock[0].now_us + _planned_us(state, job, multiplicity) <= ahead.head[0].start_us


@kernel
def bar_refused(
    state: EngineState, ahead: ReservationProjection, aside: IntegerRow, head: int, job: int
) -> None:
    """Let placements keep off those of the head's nodes (``aside``) that are refused to ``job``."""
    asked = state.jobs[job]
    spills = False
    for node in range(state.rules[0].nodes):
        one = state.classes[state.class_of[node]]
        if not has(aside, node) and fits(asked, one):
            spills = spills or not _ends_by_start(state, ahead, job, one.used)
    for node in range(state.rules[0].nodes):
        if not has(aside, node):
            continue
        one = state.classes[state.class_of[node]]
        slots = max(one.used, one.then_used + state.jobs[head].cores)
        if _multiplicity(state, slots) == _multiplicity(state, slots + asked.cores):
            continue
        if spills or not _ends_by_start(state, ahead, job, one.used):
            flip(state.barred, node)


@kernel
def enter_plan(state: EngineState, ahead: ReservationProjection, head: int, job: int) -> None:
    """Enter ``job``, which is about to take the cores of its pieces, in the plan."""
    planned_us = _planned_us(state, job, _job_multiplicity(state, job) + 1)
    stays = state.clock[0].now_us + planned_us > ahead.head[0].start_us
    ahead.base.runs[job].busy = int(stays)
    if stays:
        occupy_cores(state, ahead, head, job)


@kernel
def raises_victim(state: EngineState, ahead: ReservationProjection, ncs: Ncs, job: int) -> bool:
    """Return whether rule 2 refuses ``job`` on the cores of its pieces, which it does not hold yet."""
    if not ncs.rules[0].victims or ahead.head[0].start_us == FAR_US:
        return False
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        for place in range(state.classes[held.node_class].listed):
            other = state.listed[held.node_class, place]
            guest = state.pieces[other].job
            if guest == job or ahead.base.runs[guest].busy:
                continue
            if not overlap(state.piece_cores, piece, other):
                continue
            jobs = _jobs_on_common(state, piece, other, held.node_class)
            if jobs + 1 > _job_multiplicity(state, guest):
                _note_bound(state, ncs, job)
                return True
        piece = held.next
    return False


@kernel
def _note_bound(state: EngineState, ncs: Ncs, job: int) -> None:
    if ncs.rules[0].bounds:
        bound = ncs.bounds[ncs.rules[0].known]
        bound.procs = state.jobs[job].nodes * state.jobs[job].cores
        bound.request_us = state.jobs[job].request_us
        ncs.rules[0].known += 1
