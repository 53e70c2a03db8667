"""The event loop: one event at a time, and one scheduling pass after every arrival and every end.

Order at one instant: ends before changes of phase before arrivals, each in order of job number.
"""

from __future__ import annotations

from simulator.engine.agenda import enter_queue
from simulator.engine.compile import kernel, kernel_apart
from simulator.engine.progress import change_phase, finish, set_speeds
from simulator.engine.state import (
    AGENDA,
    ARRIVAL,
    ARRIVED_JOBS,
    EVENTS,
    FCFS,
    HEAP,
    LAST,
    NEXT_US,
    NOW,
    POLICY,
    SUBMIT_US,
    WAITING,
    State,
)
from simulator.policies.easy import Outlook, pass_after_arrival, pass_after_end, start_heads

ENDED, CHANGED, ARRIVED, NOTHING = range(4)
"""Kinds of event."""


@kernel
def next_event(state: State) -> int:
    """Advance the clock to the next event and return its kind.

    Its job is the first of the agenda, or the next to arrive.
    """
    clock = state.clock
    arrived = clock[ARRIVED_JOBS]
    pending = arrived < state.jobs.shape[1] - 1
    if clock[AGENDA] > 0:
        job = state.run[HEAP, 0]
        if not pending or state.run[NEXT_US, job] <= state.jobs[SUBMIT_US, state.jobs[ARRIVAL, arrived]]:
            clock[NOW] = state.run[NEXT_US, job]
            return ENDED if state.run[LAST, job] else CHANGED
    if not pending:
        return NOTHING
    clock[NOW] = state.jobs[SUBMIT_US, state.jobs[ARRIVAL, arrived]]
    return ARRIVED


@kernel
def arrive(state: State) -> int:
    """Queue the next job to arrive and return it."""
    job: int = state.jobs[ARRIVAL, state.clock[ARRIVED_JOBS]]
    state.clock[ARRIVED_JOBS] += 1
    enter_queue(state.run, state.clock, job)
    return job


@kernel_apart
def run_events(state: State, outlook: Outlook, most: int) -> int:
    """Process at most ``most`` events under built-in rules; return how many there were."""
    easy = state.rules[POLICY] != FCFS
    for event in range(most):
        kind = next_event(state)
        if kind == NOTHING:
            return event
        state.clock[EVENTS] += 1
        if kind == ARRIVED:
            job = arrive(state)
            if easy:
                pass_after_arrival(state, outlook, job)
            elif state.clock[WAITING] == 1:
                start_heads(state, outlook.shadow, False)
            continue
        job = state.run[HEAP, 0]
        if kind == CHANGED:
            change_phase(state, job)
            set_speeds(state, job)
            continue
        finish(state, job)
        set_speeds(state, job)
        if easy:
            pass_after_end(state, outlook, job)
        else:
            start_heads(state, outlook.shadow, False)
    return most
