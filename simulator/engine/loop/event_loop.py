"""The event loop: one event at a time, and one scheduling pass after every arrival and every end.

With the rule ``together`` one pass follows all that happens at one instant.

Order at one instant: ends before changes of phase before arrivals, each in order of job number.
``lifecycle_loop`` is the loop of jobs that do more than run once.
"""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.lifecycle.job_progress import change_phase, finish, set_speeds
from simulator.policies.easy.backfill_state import BackfillState
from simulator.policies.easy.easy_pass import make_pass, note_arrived, note_ended, start_heads, waits_for_ends
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.event_queue import enter_queue, first_waiting

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
    """Note that ``job`` has arrived, and that a pass is due."""
    if outlook is not None:
        note_arrived(state, outlook, job)
    if state.clock[0].due != NEVER:
        state.clock[0].due += 1


@kernel
def after_end(state: EngineState, outlook: BackfillState | None, job: int) -> None:
    """Note that ``job`` has ended, and that a pass is due."""
    if outlook is not None:
        note_ended(state, outlook, job)
    state.clock[0].due = NEVER


@kernel
def _waits_for_ends(state: EngineState, outlook: BackfillState | None) -> bool:
    if outlook is None:
        return False
    return waits_for_ends(state, outlook)


@kernel
def make_due_pass(state: EngineState, outlook: BackfillState | None) -> None:
    """Make a pass if one is due: FCFS if the policy has no lookahead."""
    clock = state.clock[0]
    if clock.due == 0 or _waits_for_ends(state, outlook):
        return
    first = NEVER
    if clock.due != NEVER:
        first = state.lists[clock.arrived - clock.due].arrival
    clock.due = 0
    if outlook is not None:
        make_pass(state, outlook, first)
    elif first == NEVER or first_waiting(state) == first:
        start_heads(state, None, None)


@kernel
def _more_happens_now(state: EngineState) -> bool:
    """Return whether there is another event at this instant."""
    clock = state.clock[0]
    if clock.agenda > 0 and state.runs[state.lists[0].agenda].next_us == clock.now_us:
        return True
    if clock.arrived == state.rules[0].jobs:
        return False
    return state.jobs[state.lists[clock.arrived].arrival].submit_us == clock.now_us


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
        else:
            job = state.lists[0].agenda
            if kind == CHANGED:
                change_phase(state, job)
            else:
                finish(state, job)
            set_speeds(state, job)
            if kind == ENDED:
                after_end(state, outlook, job)
        if not state.rules[0].together or not _more_happens_now(state):
            make_due_pass(state, outlook)
    return most
