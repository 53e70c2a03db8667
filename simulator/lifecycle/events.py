"""The next event, and what happens then, whatever the policy: the kernels of which event loops are made.

Order at one instant: ends, and jobs that leave after a warning, before other changes of jobs, each in order
of job number; nodes that come back, nodes that fail, by number; timers in the order in which they were set;
arrivals. Jobs that run once have fewer kinds of event, and ``next_event``; those with lifecycles have
``next_lifecycle_event``.

A policy that is a kernel has an event loop of its own of a few lines, like ``run_events`` of EASY: it lets
things happen, and makes its passes.
"""

from __future__ import annotations

from simulator.cores.node_fitting import end_leases, set_down
from simulator.jit.compilation import kernel
from simulator.lifecycle.job_progress import change_phase, set_speeds
from simulator.lifecycle.lifecycle_actions import come, end, leave, lose_node, next_on_node
from simulator.model.system import FAR_US
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.event_queue import EXPIRY, cancel_timer, enter_queue, first_timer
from simulator.state.lifecycle_state import LEAVING, LifecycleTables

ENDED, LEFT, CHANGED, NODE_UP, NODE_DOWN, RANG, ARRIVED, NOTHING = range(8)
"""Kinds of event."""


@kernel
def next_event(state: EngineState) -> int:
    """Advance the clock to the next event and return its kind.

    Its job is the first of the agenda, or the next to arrive.
    """
    clock = state.clock[0]
    pending = clock.arrived < state.rules[0].jobs
    if clock.agenda > 0:
        run = state.runs[state.lists[0].agenda]
        if not pending or run.next_us <= state.jobs[state.lists[clock.arrived].arrival].submit_us:
            clock.now_us = run.next_us
            return ENDED if run.last else CHANGED
    if not pending:
        return NOTHING
    clock.now_us = state.jobs[state.lists[clock.arrived].arrival].submit_us
    return ARRIVED


@kernel
def arrive(state: EngineState) -> int:
    """Queue the next job to arrive and return it."""
    job = state.lists[state.clock[0].arrived].arrival
    state.clock[0].arrived += 1
    enter_queue(state, job)
    return job


@kernel
def more_happens_now(state: EngineState) -> bool:
    """Return whether there is another event at this instant."""
    clock = state.clock[0]
    if clock.agenda > 0 and state.runs[state.lists[0].agenda].next_us == clock.now_us:
        return True
    if clock.arrived == state.rules[0].jobs:
        return False
    return state.jobs[state.lists[clock.arrived].arrival].submit_us == clock.now_us


@kernel
def find_next(state: EngineState, lifecycles: LifecycleTables) -> tuple[int, int]:
    """Return the kind of the next event, and when it happens; all is over when all jobs are."""
    clock, counts = state.clock[0], lifecycles.clock[0]
    kind = NOTHING
    at_us = FAR_US
    if counts.unfinished == 0:
        return kind, at_us
    if clock.agenda > 0:
        job = state.lists[0].agenda
        run = state.runs[job]
        if run.next_us < at_us:
            at_us = run.next_us
            kind = CHANGED
            if run.last:
                kind = LEFT if lifecycles.jobs[job].doing == LEAVING else ENDED
    if counts.outages_past < counts.outages and lifecycles.outages[counts.outages_past].at_us < at_us:
        at_us = lifecycles.outages[counts.outages_past].at_us
        kind = NODE_DOWN if lifecycles.outages[counts.outages_past].goes_down else NODE_UP
    if counts.ticking > 0 and lifecycles.timers[first_timer(lifecycles)].at_us < at_us:
        at_us = lifecycles.timers[first_timer(lifecycles)].at_us
        kind = RANG
    if clock.arrived < state.rules[0].jobs:
        submit_us = state.jobs[state.lists[clock.arrived].arrival].submit_us
        if submit_us < at_us:
            at_us = submit_us
            kind = ARRIVED
    return kind, at_us


@kernel
def next_lifecycle_event(state: EngineState, lifecycles: LifecycleTables) -> int:
    """Advance the clock to the next event and return its kind."""
    kind, at_us = find_next(state, lifecycles)
    if kind != NOTHING:
        state.clock[0].now_us = at_us
        state.clock[0].events += 1
    return kind


@kernel
def come_next(state: EngineState, lifecycles: LifecycleTables) -> int:
    """Let the next job arrive; return it."""
    job = arrive(state)
    come(state, lifecycles, job)
    return job


@kernel
def next_outage(lifecycles: LifecycleTables) -> int:
    """Return the node of the next outage, or end of one, and go beyond it."""
    node = lifecycles.outages[lifecycles.clock[0].outages_past].node
    lifecycles.clock[0].outages_past += 1
    return node


@kernel
def ring(state: EngineState, lifecycles: LifecycleTables) -> int:
    """Take the timer that rings off the heap, and end the reservations that it ends; return its slot."""
    slot = first_timer(lifecycles)
    timer = lifecycles.timers[slot]
    cancel_timer(lifecycles, slot)
    if timer.kind == EXPIRY and timer.about != NEVER:
        end_leases(state, lifecycles, timer.about)
    return slot


@kernel
def _fail(state: EngineState, lifecycles: LifecycleTables, node: int) -> None:
    """Let a node go down, and the jobs on it with it."""
    job = next_on_node(state, lifecycles, node, NEVER)
    while job != NEVER:
        lose_node(state, lifecycles, job)
        set_speeds(state, job)
        job = next_on_node(state, lifecycles, node, job)
    set_down(state, lifecycles, node, 1)


@kernel
def happen(state: EngineState, lifecycles: LifecycleTables) -> int:
    """Let the next event happen under the built-in sharing models and return its kind.

    Its job, node or slot of a timer is ``lifecycles.clock[0].subject``.
    """
    kind = next_lifecycle_event(state, lifecycles)
    subject = state.lists[0].agenda
    if kind == CHANGED:
        change_phase(state, subject)
        set_speeds(state, subject)
    elif kind == ENDED:
        end(state, lifecycles, subject)
        set_speeds(state, subject)
    elif kind == LEFT:
        leave(state, lifecycles, subject)
        set_speeds(state, subject)
    elif kind == ARRIVED:
        subject = come_next(state, lifecycles)
    elif kind == RANG:
        subject = ring(state, lifecycles)
    elif kind == NODE_UP:
        subject = next_outage(lifecycles)
        set_down(state, lifecycles, subject, 0)
    elif kind == NODE_DOWN:
        subject = next_outage(lifecycles)
        _fail(state, lifecycles, subject)
    lifecycles.clock[0].subject = subject
    return kind


@kernel
def log_is_full(lifecycles: LifecycleTables) -> bool:
    """Return whether the log is too full for all that may happen at the next event."""
    counts, log = lifecycles.clock[0], lifecycles.log
    return 2 * counts.logged > len(log.stretches) or 2 * counts.parts_logged > len(log.parts)
