"""EASY backfilling on dedicated and on shared cores: a later job may start if the head starts no later.

Sources: Lifka 1995 and the rules of the golden schedules for dedicated cores; thesis section 5.2.3 for shared
ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.engine.compile import kernel
from simulator.engine.occupancy import free_slots, take_slots
from simulator.engine.progress import start
from simulator.engine.state import (
    CLOCK_FIELDS,
    CORES,
    NEVER,
    NODE_FIELDS,
    NODES,
    NODES_DIFFER,
    QUEUE_NEXT,
    REQUEST_US,
    RESTLESS,
    SHAPE,
    WAITING,
    State,
    run_table,
)
from simulator.placement.builtin import place
from simulator.policies import shadow as dedicated
from simulator.policies import trial as shared
from simulator.policies.ahead import KNOWN, Ahead, find_start
from simulator.policies.refusals import Refusals, forget_refusals, is_hopeless, no_refusals, note_refusal
from simulator.policies.shadow import Shadow, find_shadow, note_end, note_start


class Outlook(NamedTuple):
    """What EASY keeps of the future: on dedicated cores a list of ends, on shared ones two projections."""

    shadow: Shadow
    ahead: Ahead
    refusals: Refusals


def empty_outlook(state: State) -> Outlook:
    """Return the outlook of an idle cluster."""
    jobs = state.run.shape[1] - 1
    nodes, slots, words = state.occupied.shape
    listing = is_steady(state)
    projected, rooms = (0, 0) if listing else (jobs, nodes)
    shadow = Shadow(
        counters=np.zeros(4, dtype=np.int64),
        ends=np.zeros((2, min(jobs, state.listed.size) if listing else 0), dtype=np.int64),
        room=np.zeros((NODE_FIELDS, nodes), dtype=np.int64),
    )
    ahead = Ahead(
        counters=np.zeros(8, dtype=np.int64),
        base=run_table(projected),
        base_clock=np.zeros(CLOCK_FIELDS, dtype=np.int64),
        base_stack=np.zeros((rooms, slots, words), dtype=np.int64),
        room=np.zeros((NODE_FIELDS, rooms), dtype=np.int64),
        trial=run_table(projected),
        trial_clock=np.zeros(CLOCK_FIELDS, dtype=np.int64),
        trial_stack=np.zeros((rooms, slots, words), dtype=np.int64),
        group_cores=np.zeros((rooms, words), dtype=np.int64),
        lists=np.zeros((2, max(projected, rooms)), dtype=np.int64),
    )
    return Outlook(shadow, ahead, no_refusals(int(state.jobs[SHAPE].max()) + 1))


@kernel
def is_steady(state: State) -> bool:
    """Return whether a job's requested end is known when it starts: one slot a core, and nodes alike."""
    return bool(state.occupied.shape[1] == 1 and state.rules[NODES_DIFFER] == 0)


@kernel
def start_heads(state: State, shadow: Shadow, listing: bool) -> None:
    """Start queue heads while they fit: the whole of FCFS, and the beginning of a pass of EASY."""
    end = state.run.shape[1] - 1
    while state.clock[WAITING] > 0:
        head = state.run[QUEUE_NEXT, end]
        if not place(state, head):
            return
        start(state, head)
        if listing:
            note_start(state, shadow, head)
            shadow.counters[dedicated.KNOWN] = 0


@kernel
def _may_be_tried(state: State, refusals: Refusals, job: int) -> bool:
    """Return whether ``job`` fits now, and name its cores, unless it is known that it would be refused."""
    if state.roomy[state.jobs[CORES, job]] < state.jobs[NODES, job] or is_hopeless(state, refusals, job):
        return False
    fits = place(state, job)
    if not fits:
        note_refusal(state, refusals, job, 0)
    return fits


@kernel
def _backfill_dedicated(state: State, outlook: Outlook, first: int) -> None:
    """Backfill the queue from ``first`` on, where requested ends are known."""
    run, shadow, refusals = state.run, outlook.shadow, outlook.refusals
    end = run.shape[1] - 1
    head = run[QUEUE_NEXT, end]
    forget_refusals(refusals)
    job = first
    while job != end and state.roomy[1] > 0:
        after = run[QUEUE_NEXT, job]
        if _may_be_tried(state, refusals, job):
            if shadow.counters[dedicated.KNOWN] == 0:
                find_shadow(state, shadow, head)
            if dedicated.delays_head(state, shadow, head, job):
                note_refusal(state, refusals, job, state.jobs[REQUEST_US, job])
            else:
                start(state, job)
                note_start(state, shadow, job)
                forget_refusals(refusals)
        job = after


@kernel
def _backfill_shared(state: State, outlook: Outlook) -> None:
    """Backfill the whole queue where the ends depend on who shares cores with whom."""
    run, ahead, refusals = state.run, outlook.ahead, outlook.refusals
    end = run.shape[1] - 1
    head = run[QUEUE_NEXT, end]
    if state.clock[RESTLESS] > 0:
        ahead.counters[KNOWN] = 0
    forget_refusals(refusals)
    job = run[QUEUE_NEXT, head]
    while job != end and state.roomy[1] > 0:
        after = run[QUEUE_NEXT, job]
        if _may_be_tried(state, refusals, job):
            if ahead.counters[KNOWN] == 0:
                find_start(state, ahead, head)
                ahead.counters[KNOWN] = 1
            take_slots(state, job)
            delayed = shared.delays_head(state, ahead, head, job)
            free_slots(state, job)
            if delayed:
                note_refusal(state, refusals, job, state.jobs[REQUEST_US, job])
            else:
                start(state, job)
                forget_refusals(refusals)
        job = after


@kernel
def pass_after_end(state: State, outlook: Outlook, job: int) -> None:
    """Make a scheduling pass after ``job`` has ended."""
    listing = is_steady(state)
    outlook.ahead.counters[KNOWN] = 0
    if listing:
        note_end(state, outlook.shadow, job)
        outlook.shadow.counters[dedicated.KNOWN] = 0
    start_heads(state, outlook.shadow, listing)
    if state.clock[WAITING] == 0:
        outlook.shadow.counters[dedicated.COUNT] = NEVER
    if state.clock[WAITING] < 2:
        return
    if listing:
        head = state.run[QUEUE_NEXT, state.run.shape[1] - 1]
        _backfill_dedicated(state, outlook, state.run[QUEUE_NEXT, head])
    else:
        _backfill_shared(state, outlook)


@kernel
def pass_after_arrival(state: State, outlook: Outlook, job: int) -> None:
    """Make a scheduling pass after ``job`` has arrived.

    On dedicated cores only ``job`` needs a look: since the last pass no core became free, and a refused job
    that starts later ends later. Where cores are shared, a refused job may do less harm later, so all are
    tried again.
    """
    listing = is_steady(state)
    if state.clock[WAITING] == 1:
        outlook.ahead.counters[KNOWN] = 0
        start_heads(state, outlook.shadow, listing)
    elif listing:
        _backfill_dedicated(state, outlook, job)
    else:
        _backfill_shared(state, outlook)
