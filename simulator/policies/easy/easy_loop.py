"""The event loops of FCFS and EASY: of jobs that run once, and of jobs with lifecycles.

One event at a time, and one scheduling pass after every arrival and every end; with the rule ``together`` one
pass follows all that happens at one instant.
"""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.lifecycle.events import (
    ARRIVED,
    CHANGED,
    ENDED,
    NOTHING,
    arrive,
    find_next,
    happen,
    log_is_full,
    more_happens_now,
    next_event,
)
from simulator.lifecycle.job_progress import change_phase, finish, set_speeds
from simulator.policies.easy.backfill_state import BackfillState
from simulator.policies.easy.easy_pass import forget_future, make_pass, note_ended, start_heads
from simulator.policies.easy.ncs import ends_follow
from simulator.policies.easy.waiting_shapes import enter_lane
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.event_queue import first_waiting, release_dependents
from simulator.state.lifecycle_state import LifecycleTables


@kernel
def _after_arrival(state: EngineState, outlook: BackfillState | None, job: int) -> None:
    """Note that ``job`` has arrived, and that a pass is due."""
    if outlook is not None:
        enter_lane(state, outlook.lanes, job)
    if state.clock[0].due != NEVER:
        state.clock[0].due += 1


@kernel
def _after_end(state: EngineState, outlook: BackfillState | None, job: int) -> None:
    """Note that ``job`` has ended, and that a pass is due."""
    if outlook is not None:
        note_ended(state, outlook, job)
    state.clock[0].due = NEVER


@kernel
def _waits_for_ends(state: EngineState, outlook: BackfillState | None) -> bool:
    if outlook is None:
        return False
    return ends_follow(state, outlook.ncs)


@kernel
def _make_due_pass(state: EngineState, outlook: BackfillState | None) -> None:
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
def _after_change(state: EngineState, outlook: BackfillState | None) -> None:
    """Note that a node went down or came back, or a job has left, and that a pass is due."""
    if outlook is not None:
        forget_future(outlook)
    state.clock[0].due = NEVER


@kernel
def run_events(state: EngineState, outlook: BackfillState | None, most: int) -> int:
    """Process at most ``most`` events under built-in rules; return how many there were."""
    for event in range(most):
        kind = next_event(state)
        if kind == NOTHING:
            return event
        state.clock[0].events += 1
        if kind == ARRIVED:
            _after_arrival(state, outlook, arrive(state))
        else:
            job = state.lists[0].agenda
            if kind == CHANGED:
                change_phase(state, job)
            else:
                finish(state, job)
                release_dependents(state, job)
            set_speeds(state, job)
            if kind == ENDED:
                _after_end(state, outlook, job)
        if not state.rules[0].together or not more_happens_now(state):
            _make_due_pass(state, outlook)
    return most


@kernel
def run_lifecycle_events(
    state: EngineState, lifecycles: LifecycleTables, outlook: BackfillState | None, most: int
) -> int:
    """Process at most ``most`` events under FCFS or EASY; return how many there were.

    There are fewer, too, where the log has to be emptied.
    """
    for event in range(most):
        if log_is_full(lifecycles):
            return event
        kind = happen(state, lifecycles)
        if kind == NOTHING:
            return event
        if kind == ARRIVED:
            _after_arrival(state, outlook, lifecycles.clock[0].subject)
        elif kind == ENDED:
            _after_end(state, outlook, lifecycles.clock[0].subject)
        elif kind != CHANGED:
            _after_change(state, outlook)
        if not state.rules[0].together or find_next(state, lifecycles)[1] != state.clock[0].now_us:
            _make_due_pass(state, outlook)
    return most
