"""What NCS, the thesis's simulator, refuses beyond EASY's rule (docs/experiments.md).

(1) A candidate that raises the multiplicity of a victim that was expected to end by the head's start,
although the head may find nodes all the same. (2) After such a refusal, in the same pass, every candidate
with at least its processors and its requested time. (3) While several jobs end at one instant there is no
pass but after the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.cores.core_slots import overlap, piece_multiplicity
from simulator.jit.compilation import kernel, kernel_state
from simulator.jit.field_records import RecordTable, StateAllocator
from simulator.policies.easy.backfill_trial import RowMirror
from simulator.policies.easy.reservation import ReservationProjection
from simulator.state.engine_state import NEVER, EngineState


@dataclass(slots=True, eq=False)
class NcsRecord:
    """Which of the three rules hold, and how many bounds are known in this pass."""

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
    most = 1
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
def raises_victim(
    state: EngineState, ahead: ReservationProjection, mirror: RowMirror | None, ncs: Ncs | None, job: int
) -> bool:
    """Return whether rule 1 refuses ``job`` on the cores of its pieces, which it does not hold yet.

    The head's earliest start is known, and with it who has ended by then. NCS has no rows, and no such rule
    for them.
    """
    if ncs is None:
        return False
    if mirror is not None:
        return False
    if not ncs.rules[0].victims:
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
