"""The life of a running job: start, busy and idle phases, changes of speed, end.

Every time is a whole microsecond. A phase with ``LEFT`` units at ``SPEED`` ends ``ceil(LEFT / SPEED)``
microseconds later, which is the only rounding there is; what the job could do in the rest of that microsecond
is lost.
"""

from __future__ import annotations

from simulator.engine.agenda import (
    enter_agenda,
    enter_running,
    leave_agenda,
    leave_queue,
    leave_running,
    move_in_agenda,
)
from simulator.engine.compile import kernel
from simulator.engine.occupancy import add_to_stack, free_slots, remove_from_stack, take_slots
from simulator.engine.rows import enter_row, has_rows, leave_row
from simulator.engine.speed import note_affected, speed_of
from simulator.engine.state import (
    AFFECTED,
    BUSY,
    END_US,
    FAR_US,
    HEAP_AT,
    LAST,
    LEFT,
    NEXT_US,
    NODE,
    NOW,
    PART_AT,
    PHASE,
    PHASE_AT,
    REQUEST_LEFT,
    REQUEST_US,
    RESTLESS,
    SCALE,
    SINCE_US,
    SPEED,
    START_US,
    TOUCHED,
    Ints,
    State,
)


@kernel
def settle(run: Ints, now: int, job: int) -> None:
    """Credit ``job`` with the work it did since its speed was set."""
    done = min(run[LEFT, job], (now - run[SINCE_US, job]) * run[SPEED, job])
    run[LEFT, job] -= done
    run[REQUEST_LEFT, job] -= done
    run[SINCE_US, job] = now


@kernel
def set_speed(run: Ints, clock: Ints, job: int, speed: int) -> None:
    """Let ``job`` go on at ``speed`` from now."""
    if run[SPEED, job] == speed:
        return
    now = clock[NOW]
    settle(run, now, job)
    run[SPEED, job] = speed
    run[NEXT_US, job] = now + (run[LEFT, job] + speed - 1) // speed
    if run[HEAP_AT, job] >= 0:
        move_in_agenda(run, clock, job)


@kernel
def _enter_phase(state: State, job: int) -> None:
    """Begin the job's phase at full speed, not yet counted on its cores."""
    run = state.run
    phase = run[PHASE, job]
    now = state.clock[NOW]
    scale = state.rules[SCALE]
    run[LEFT, job] = state.phase_us[phase] * scale
    run[SINCE_US, job] = now
    run[SPEED, job] = scale
    run[BUSY, job] = (phase - state.jobs[PHASE_AT, job]) & 1
    run[LAST, job] = phase + 1 == state.jobs[PHASE_AT, job + 1]
    run[NEXT_US, job] = now + state.phase_us[phase]


@kernel
def count_busy(state: State, job: int, busy: bool) -> None:
    """Count ``job`` as busy on its cores, or no longer, and list the busy jobs that feel it."""
    state.clock[TOUCHED] = 0
    if state.occupied.shape[1] == 1:
        return
    first = state.jobs[PART_AT, job]
    last = state.jobs[PART_AT, job + 1]
    if busy:
        for part in range(first, last):
            add_to_stack(state.busy, state.mask, state.parts[NODE, part], part)
    note_affected(state, state.run, state.clock, state.busy, job)
    if not busy:
        for part in range(first, last):
            remove_from_stack(state.busy, state.mask, state.parts[NODE, part], part)


@kernel
def set_speeds(state: State, job: int) -> None:
    """Give ``job``, if it is busy, and the affected jobs the speed that the built-in model gives them now."""
    run = state.run
    if run[BUSY, job]:
        set_speed(run, state.clock, job, speed_of(state, run, state.busy, job))
    for place in range(state.clock[TOUCHED]):
        other = run[AFFECTED, place]
        set_speed(run, state.clock, other, speed_of(state, run, state.busy, other))


@kernel
def _is_restless(state: State, job: int) -> bool:
    """Return whether ``job`` is idle at some time: it has other phases than one busy one."""
    first = state.jobs[PHASE_AT, job]
    return bool(state.jobs[PHASE_AT, job + 1] - first != 2 or state.phase_us[first] > 0)


@kernel
def begin(state: State, job: int) -> None:
    """Start the waiting ``job`` on the cores that its parts name; speeds are still to be set."""
    run = state.run
    leave_queue(run, state.clock, job)
    enter_running(run, state.clock, job)
    take_slots(state, job)
    if has_rows(state):
        enter_row(state, job)
    run[START_US, job] = state.clock[NOW]
    run[REQUEST_LEFT, job] = state.jobs[REQUEST_US, job] * state.rules[SCALE]
    first = state.jobs[PHASE_AT, job]
    if state.phase_us[first] == 0 and first + 1 < state.jobs[PHASE_AT, job + 1]:
        first += 1
    run[PHASE, job] = first
    state.clock[RESTLESS] += _is_restless(state, job)
    _enter_phase(state, job)
    state.clock[TOUCHED] = 0
    if run[BUSY, job]:
        count_busy(state, job, True)
    enter_agenda(run, state.clock, job)


@kernel
def change_phase(state: State, job: int) -> None:
    """Go from a phase to the next, of the other kind; speeds are still to be set."""
    run = state.run
    settle(run, state.clock[NOW], job)
    if run[BUSY, job]:
        count_busy(state, job, False)
    run[PHASE, job] += 1
    _enter_phase(state, job)
    move_in_agenda(run, state.clock, job)
    if run[BUSY, job]:
        count_busy(state, job, True)


@kernel
def finish(state: State, job: int) -> None:
    """End ``job`` and give back what it holds; speeds of the others are still to be set."""
    run = state.run
    settle(run, state.clock[NOW], job)
    state.clock[TOUCHED] = 0
    if run[BUSY, job]:
        count_busy(state, job, False)
        run[BUSY, job] = 0
    leave_agenda(run, state.clock, job)
    leave_running(run, state.clock, job)
    free_slots(state, job)
    if has_rows(state):
        leave_row(state, job)
    state.clock[RESTLESS] -= _is_restless(state, job)
    run[END_US, job] = state.clock[NOW]


@kernel
def suspend(state: State, job: int) -> None:
    """Freeze a busy job: it does nothing and is counted nowhere; speeds of the others are still to be set."""
    run = state.run
    settle(run, state.clock[NOW], job)
    count_busy(state, job, False)
    run[BUSY, job] = 0
    run[SPEED, job] = 0
    run[NEXT_US, job] = FAR_US
    move_in_agenda(run, state.clock, job)


@kernel
def resume(state: State, job: int) -> None:
    """Let a frozen busy job go on; speeds, its own too, are still to be set."""
    run = state.run
    run[SINCE_US, job] = state.clock[NOW]
    run[BUSY, job] = 1
    count_busy(state, job, True)


@kernel
def start(state: State, job: int) -> None:
    """Start ``job`` on the cores that its parts name, under a built-in sharing model."""
    begin(state, job)
    set_speeds(state, job)
