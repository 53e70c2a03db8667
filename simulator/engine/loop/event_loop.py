"""The event loop: one event at a time, and one scheduling pass after every arrival and every end.

Order at one instant: ends before changes of phase before arrivals, each in order of job number.
``lifecycle_loop`` is the loop of jobs that do more than run once.
"""

from __future__ import annotations

from simulator.engine.kernels.compilation import kernel
from simulator.engine.lifecycle.job_progress import change_phase, finish, set_speeds
from simulator.engine.state.engine_state import EngineState
from simulator.engine.state.event_agenda import enter_queue
from simulator.policies.easy.backfill_state import BackfillState
from simulator.policies.easy.easy_pass import pass_after_arrival, pass_after_end, start_heads

ENDED, CHANGED, ARRIVED, NOTHING = range(4)
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
def after_arrival(state: EngineState, outlook: BackfillState | None, job: int) -> None:
    """Make a pass after ``job`` has arrived: FCFS if the policy has no lookahead."""
    if outlook is not None:
        pass_after_arrival(state, outlook, job)
    elif state.clock[0].waiting == 1:
        start_heads(state, None, None)


@kernel
def after_end(state: EngineState, outlook: BackfillState | None, job: int) -> None:
    """Make a pass after ``job`` has ended."""
    if outlook is not None:
        pass_after_end(state, outlook, job)
    else:
        start_heads(state, None, None)


@kernel
def run_events(state: EngineState, outlook: BackfillState | None, most: int) -> int:
    """Process at most ``most`` events under built-in rules; return how many there were."""
    for event in range(most):
        kind = next_event(state)
        if kind == NOTHING:
            return event
        state.clock[0].events += 1
        if kind == ARRIVED:
            after_arrival(state, outlook, arrive(state))
            continue
        job = state.lists[0].agenda
        if kind == CHANGED:
            change_phase(state, job)
            set_speeds(state, job)
            continue
        finish(state, job)
        set_speeds(state, job)
        after_end(state, outlook, job)
    return most
