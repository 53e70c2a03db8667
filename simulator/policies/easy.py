"""EASY backfilling on dedicated and on shared cores: a later job may start if the head starts no later.

Sources: Lifka 1995 and the rules of the golden schedules for dedicated cores; thesis section 5.2.3 for shared
ones. ``EASY_ELSEWHERE`` gives a job that would delay the head a second choice of nodes (``aside``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.engine.compile import kernel, kernel_apart
from simulator.engine.occupancy import free_slots, take_slots
from simulator.engine.progress import start
from simulator.engine.state import (
    CLOCK_FIELDS,
    CORES,
    EASY,
    EASY_ELSEWHERE,
    FREE,
    NEVER,
    NODE_FIELDS,
    NODES,
    NODES_DIFFER,
    POLICY,
    QUEUE_NEXT,
    REQUEST_US,
    RESTLESS,
    SHAPE,
    USED,
    WAITING,
    State,
    run_table,
)
from simulator.placement.builtin import place
from simulator.policies import shadow as dedicated
from simulator.policies import trial as shared
from simulator.policies.ahead import KNOWN, Ahead, find_start
from simulator.policies.aside import Aside, bar, choose_for_head, count_used, no_aside, unbar
from simulator.policies.refusals import Refusals, forget_refusals, is_hopeless, no_refusals, note_refusal
from simulator.policies.shadow import Shadow, find_shadow, note_end, note_start


class Outlook(NamedTuple):
    """What EASY keeps of the future: on dedicated cores a list of ends, on shared ones two projections."""

    shadow: Shadow
    ahead: Ahead
    refusals: Refusals
    aside: Aside


def empty_outlook(state: State) -> Outlook:
    """Return the outlook of an idle cluster."""
    jobs = state.run.shape[1] - 1
    nodes, slots, words = state.occupied.shape
    listing = is_steady(state)
    projected, rooms = (0, 0) if listing else (jobs, nodes)
    shadow = Shadow(
        counters=np.zeros(dedicated.COUNTERS, dtype=np.int64),
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
    return Outlook(shadow, ahead, no_refusals(int(state.jobs[SHAPE].max()) + 1), no_aside(state))


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
def _delays_dedicated(state: State, outlook: Outlook, head: int, job: int) -> bool:
    """Return whether ``job``, on the cores that its parts name, would delay the head on dedicated cores."""
    if outlook.shadow.counters[dedicated.KNOWN] == 0:
        find_shadow(state, outlook.shadow, head)
    return dedicated.delays_head(state, outlook.shadow, head, job)


@kernel_apart
def _delays_shared(state: State, outlook: Outlook, head: int, job: int) -> bool:
    """Return the same for shared cores."""
    if outlook.ahead.counters[KNOWN] == 0:
        find_start(state, outlook.ahead, head)
        outlook.ahead.counters[KNOWN] = 1
    take_slots(state, job)
    delayed = shared.delays_head(state, outlook.ahead, head, job)
    free_slots(state, job)
    return delayed


@kernel
def _delays_head(state: State, outlook: Outlook, head: int, job: int) -> bool:
    if is_steady(state):
        return _delays_dedicated(state, outlook, head, job)
    return _delays_shared(state, outlook, head, job)


@kernel_apart
def _place_aside(state: State, outlook: Outlook, head: int, job: int) -> bool:
    """Place ``job`` off the nodes that the head would take; return whether it fits there."""
    aside = outlook.aside
    if aside.known[0] == 0:
        if is_steady(state):
            for node in range(state.nodes.shape[1]):
                outlook.shadow.room[USED, node] = state.listed.shape[1] - outlook.shadow.room[FREE, node]
            choose_for_head(state, aside, outlook.shadow.room, head)
        else:
            count_used(outlook.ahead.room, outlook.ahead.base_stack)
            choose_for_head(state, aside, outlook.ahead.room, head)
    bar(state, aside)
    placed = place(state, job)
    unbar(state)
    return placed


@kernel_apart
def _backfill(state: State, outlook: Outlook, first: int) -> None:
    """Go through the queue from ``first`` on and start the jobs that do not delay the head."""
    run, refusals = state.run, outlook.refusals
    end = run.shape[1] - 1
    head = run[QUEUE_NEXT, end]
    listing = is_steady(state)
    outlook.aside.known[0] = 0
    forget_refusals(refusals)
    refused = first != run[QUEUE_NEXT, head]
    job = first
    while job != end and state.roomy[1] > 0:
        after = run[QUEUE_NEXT, job]
        if _may_be_tried(state, refusals, job):
            delayed = _delays_head(state, outlook, head, job)
            if delayed and state.rules[POLICY] == EASY_ELSEWHERE and _place_aside(state, outlook, head, job):
                delayed = _delays_head(state, outlook, head, job)
            if delayed:
                note_refusal(state, refusals, job, state.jobs[REQUEST_US, job])
            else:
                start(state, job)
                if listing:
                    note_start(state, outlook.shadow, job)
                    outlook.shadow.counters[dedicated.MOVED] |= refused
                forget_refusals(refusals)
            refused |= delayed
        else:
            refused = True
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
    _backfill_all(state, outlook)


@kernel
def _backfill_all(state: State, outlook: Outlook) -> None:
    """Go through the whole queue behind its head."""
    outlook.shadow.counters[dedicated.MOVED] = 0
    if state.clock[RESTLESS] > 0:
        outlook.ahead.counters[KNOWN] = 0
    head = state.run[QUEUE_NEXT, state.run.shape[1] - 1]
    _backfill(state, outlook, state.run[QUEUE_NEXT, head])


@kernel
def pass_after_arrival(state: State, outlook: Outlook, job: int) -> None:
    """Make a scheduling pass after ``job`` has arrived.

    On dedicated cores only ``job`` needs a look: since the last pass no core became free, and a refused job
    that starts later on the same nodes ends later. But once a job behind a refused one has started, placement
    may choose other nodes for the refused one, which the head can spare; then all are tried again. So they
    are where cores are shared, for a refused job may do less harm later, and where a second choice of nodes
    is allowed, for the head's may be others now.
    """
    listing = is_steady(state)
    if state.clock[WAITING] == 1:
        outlook.ahead.counters[KNOWN] = 0
        start_heads(state, outlook.shadow, listing)
    elif listing and state.rules[POLICY] == EASY and outlook.shadow.counters[dedicated.MOVED] == 0:
        _backfill(state, outlook, job)
    else:
        _backfill_all(state, outlook)
