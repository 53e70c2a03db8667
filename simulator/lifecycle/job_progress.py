"""Running jobs: their speed, and start, busy and idle phases, end.

The life of a running job: start, busy and idle phases, changes of speed, end.

Every time is a whole microsecond. A phase with ``left`` units at ``speed`` ends ``ceil(left / speed)``
microseconds later, which is the only rounding there is; what the job could do in the rest of that microsecond
is lost.

How fast a job runs where it is: the kernels of the built-in sharing models.

``runs[job].busy`` flags the jobs that count, ``stack`` has them by core. The same kernels serve the present
(jobs that compute) and the projections of backfilling (jobs that have not ended yet).
"""

from __future__ import annotations

from simulator.cores.core_slots import (
    add_to_stack,
    free_slots,
    link,
    piece_multiplicity,
    remove_from_stack,
    take_slots,
    unlink,
)
from simulator.cores.node_classes import divide, leave_classes, name_parts
from simulator.cores.node_fitting import end_leases
from simulator.cores.slurm_rows import enter_row, leave_row
from simulator.jit.compilation import kernel
from simulator.jit.field_records import IntegerGrid, RecordTable
from simulator.lifecycle.segments import (
    begin_lifecycle,
    first_phase,
    follow,
    keep,
    rate_of,
    request_units,
    tally,
)
from simulator.model.system import FAR_US
from simulator.state.engine_state import NEVER, ONE, EngineState, Links, RunRecord, Timeline
from simulator.state.event_queue import (
    enter_agenda,
    enter_running,
    leave_agenda,
    leave_queue,
    leave_running,
    move_in_agenda,
    present,
)
from simulator.state.lifecycle_state import LifecycleTables


@kernel
def _paired_speed(state: EngineState, runs: RecordTable[RunRecord], excess: IntegerGrid, piece: int) -> int:
    """Return the speed on that core of a piece where the other applications slow it most."""
    node_class = state.pieces[piece].node_class
    job = state.pieces[piece].job
    most = 0
    for word in range(state.piece_cores.shape[1]):
        rest = state.piece_cores[piece, word]
        while rest:
            core = rest & -rest
            rest ^= core
            slowed = 0
            for place in range(state.classes[node_class].listed):
                other = state.listed[node_class, place]
                guest = state.pieces[other].job
                if guest != job and runs[guest].busy and state.piece_cores[other, word] & core:
                    slowed += excess[state.jobs[job].app, state.jobs[guest].app]
            most = max(most, slowed)
    return (state.rules[0].scale * ONE) // (ONE + most)


@kernel
def _piece_speed(
    state: EngineState,
    runs: RecordTable[RunRecord],
    stack: IntegerGrid,
    excess: IntegerGrid | None,
    piece: int,
) -> int:
    if excess is None:
        node_class = state.pieces[piece].node_class
        return state.speeds[piece_multiplicity(stack, state.piece_cores, node_class, piece, 1)]
    return _paired_speed(state, runs, excess, piece)


@kernel
def _slowest_piece(state: EngineState, runs: RecordTable[RunRecord], stack: IntegerGrid, job: int) -> int:
    slowest = -1
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        speed = _piece_speed(state, runs, stack, state.excess, piece)
        if state.rules[0].nodes_differ:
            speed = (speed * state.classes[held.node_class].factor) // ONE
        if slowest < 0 or speed < slowest:
            slowest = speed
        piece = held.next
    return slowest


@kernel
def _multiplicity(state: EngineState, stack: IntegerGrid, job: int, co_located: int) -> int:
    """Return the most jobs on a core of ``job``, which shares cores with ``co_located`` other jobs."""
    most = min(co_located + 1, state.rules[0].slots)
    if most <= 2:
        return most
    multiplicity = 2
    piece = state.jobs[job].pieces
    while piece != NEVER and multiplicity < most:
        held = state.pieces[piece]
        multiplicity = piece_multiplicity(stack, state.piece_cores, held.node_class, piece, multiplicity)
        piece = held.next
    return multiplicity


@kernel
def needs_stack(state: EngineState) -> bool:
    """Return whether ``speed_of`` looks at its stack."""
    return not state.rules[0].alike or state.rules[0].slots > 2


@kernel
def speed_of(state: EngineState, runs: RecordTable[RunRecord], stack: IntegerGrid, job: int) -> int:
    """Return the speed of ``job``, in units a microsecond: that of its slowest core, at least 1.

    Where speed hangs on the multiplicity alone ``stack`` is looked at only if that may be more than 2.
    """
    if state.rules[0].alike:
        speed = state.speeds[_multiplicity(state, stack, job, runs[job].co_located)]
    else:
        speed = _slowest_piece(state, runs, stack, job)
    return max(speed, 1) * rate_of(state.lifecycles, job)


@kernel
def note_affected(links: Links | None, line: Timeline, job: int, change: int) -> None:
    """List as affected the other busy jobs that have a core in common with ``job``.

    All that have, busy or not, have one more busy job on their cores now (``change`` is 1), or one less (-1).
    """
    if links is None:
        return
    count = 0
    record = links.of[job].first
    while record != NEVER:
        guest = links.records[record].job
        line.runs[guest].co_located += change
        if line.runs[guest].busy:
            line.lists[count].affected = guest
            count += 1
        record = links.records[record].after
    line.clock[0].affected = count


@kernel
def done_since(run: RunRecord, now_us: int) -> int:
    """Return the units that a job has done since it was settled."""
    return min(run.left, (now_us - run.since_us) * run.speed)


@kernel
def settle(run: RunRecord, now_us: int) -> None:
    """Credit a job with the work it did since its speed was set."""
    done = done_since(run, now_us)
    run.left -= done
    run.request_left -= done
    run.since_us = now_us


@kernel
def set_speed(line: Timeline, job: int, speed: int) -> None:
    """Let ``job`` go on at ``speed`` from now."""
    run = line.runs[job]
    if run.speed == speed:
        return
    now_us = line.clock[0].now_us
    settle(run, now_us)
    run.speed = speed
    run.next_us = now_us + (run.left + speed - 1) // speed
    if run.agenda_at >= 0:
        move_in_agenda(line, job)


@kernel
def _enter_phase(state: EngineState, job: int) -> None:
    """Begin the job's phase at full speed, not yet counted on its cores."""
    run = state.runs[job]
    now_us = state.clock[0].now_us
    scale = state.rules[0].scale
    length_us = state.phase_us[run.phase]
    run.left = length_us * scale
    run.since_us = now_us
    run.speed = scale
    run.busy = (run.phase - state.jobs[job].phase_at) & 1
    run.last = int(run.phase + 1 == state.jobs[job + 1].phase_at)
    run.next_us = now_us + length_us


@kernel
def _count_busy(state: EngineState, stack: IntegerGrid | None, job: int, busy: bool) -> None:
    if stack is None:
        return
    note_affected(state.links, present(state), job, 1 if busy else -1)
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        if busy:
            add_to_stack(stack, state.piece_cores, held.node_class, piece)
        else:
            remove_from_stack(stack, state.piece_cores, held.node_class, piece)
        piece = held.next


@kernel
def count_busy(state: EngineState, job: int, busy: bool) -> None:
    """Count ``job`` as busy on its cores, or no longer, and list the busy jobs that feel it."""
    state.clock[0].affected = 0
    _count_busy(state, state.busy, job, busy)


@kernel
def _speed_now(state: EngineState, stack: IntegerGrid | None, job: int) -> int:
    if stack is not None:
        return speed_of(state, state.runs, stack, job)
    slowest = state.rules[0].scale
    if state.rules[0].nodes_differ:
        piece = state.jobs[job].pieces
        slowest = state.classes[state.pieces[piece].node_class].factor
        while piece != NEVER:
            slowest = min(slowest, state.classes[state.pieces[piece].node_class].factor)
            piece = state.pieces[piece].next
        slowest = max(1, (state.rules[0].scale * slowest) // ONE)
    return slowest * rate_of(state.lifecycles, job)


@kernel
def set_speeds(state: EngineState, job: int) -> None:
    """Give ``job``, if it is busy, and the affected jobs the speed that the built-in model gives them now."""
    line = present(state)
    if state.runs[job].busy:
        set_speed(line, job, _speed_now(state, state.busy, job))
    for place in range(state.clock[0].affected):
        other = state.lists[place].affected
        set_speed(line, other, _speed_now(state, state.busy, other))


@kernel
def _is_restless(state: EngineState, lifecycles: LifecycleTables | None, job: int) -> bool:
    """Return whether ``job`` may change without an end: it has other phases than one busy one, or a life."""
    if lifecycles is not None:
        return True
    first = state.jobs[job].phase_at
    return state.jobs[job + 1].phase_at - first != 2 or state.phase_us[first] > 0


@kernel
def _begin_anew(state: EngineState, lifecycles: LifecycleTables | None, job: int) -> None:
    """Begin the first phase, or where ``job`` saved last."""
    run = state.runs[job]
    if lifecycles is None:
        run.request_left = request_units(state, lifecycles, job)
        run.phase = first_phase(state, job)
        _enter_phase(state, job)
    if lifecycles is not None:
        begin_lifecycle(state, lifecycles, job)


@kernel
def _end_leases(state: EngineState, lifecycles: LifecycleTables | None, job: int) -> None:
    if lifecycles is not None:
        end_leases(state, lifecycles, job)


@kernel
def hold(state: EngineState, job: int) -> None:
    """Let ``job`` hold the cores that its parts name, and count it there if it is busy."""
    enter_running(state, job)
    divide(state, job)
    link(state, state.links, job)
    take_slots(state, job)
    enter_row(state, state.rows, job)
    state.clock[0].affected = 0
    if state.runs[job].busy:
        count_busy(state, job, True)


@kernel
def let_go(state: EngineState, job: int) -> None:
    """Undo ``hold``."""
    state.clock[0].affected = 0
    if state.runs[job].busy:
        count_busy(state, job, False)
    leave_row(state, state.rows, job)
    leave_running(state, job)
    free_slots(state, job)
    unlink(state.links, job)
    leave_classes(state, job)


@kernel
def begin(state: EngineState, job: int) -> None:
    """Start the waiting ``job`` on the cores that its parts name; speeds are still to be set."""
    leave_queue(state, job)
    _end_leases(state, state.lifecycles, job)
    state.runs[job].start_us = state.clock[0].now_us
    state.clock[0].restless += int(_is_restless(state, state.lifecycles, job))
    _begin_anew(state, state.lifecycles, job)
    hold(state, job)
    enter_agenda(present(state), job)


@kernel
def _go_on(state: EngineState, lifecycles: LifecycleTables | None, job: int) -> None:
    """Go to the next phase, or to the next segment of a life."""
    if lifecycles is None:
        state.runs[job].phase += 1
        _enter_phase(state, job)
    if lifecycles is not None:
        tally(state, lifecycles, job)
        if follow(state, lifecycles, job):
            keep(lifecycles, job)


@kernel
def change_phase(state: EngineState, job: int) -> None:
    """Go from a phase to the next; speeds are still to be set."""
    run = state.runs[job]
    settle(run, state.clock[0].now_us)
    was_busy = run.busy
    state.clock[0].affected = 0
    _go_on(state, state.lifecycles, job)
    if was_busy and not run.busy:
        count_busy(state, job, False)
    move_in_agenda(present(state), job)
    if run.busy and not was_busy:
        count_busy(state, job, True)


@kernel
def finish(state: EngineState, job: int) -> None:
    """End ``job`` and give back what it holds; speeds of the others are still to be set."""
    vacate(state, job)
    state.runs[job].end_us = state.clock[0].now_us


@kernel
def vacate(state: EngineState, job: int) -> None:
    """Let ``job`` hold nothing; speeds of the others are still to be set."""
    run = state.runs[job]
    settle(run, state.clock[0].now_us)
    let_go(state, job)
    run.busy = 0
    leave_agenda(present(state), job)
    state.clock[0].restless -= int(_is_restless(state, state.lifecycles, job))


@kernel
def suspend(state: EngineState, job: int) -> None:
    """Freeze a busy job: it does nothing and is counted nowhere; speeds of the others are still to be set."""
    run = state.runs[job]
    settle(run, state.clock[0].now_us)
    count_busy(state, job, False)
    run.busy = 0
    run.speed = 0
    run.next_us = FAR_US
    move_in_agenda(present(state), job)


@kernel
def resume(state: EngineState, job: int) -> None:
    """Let a frozen busy job go on; speeds, its own too, are still to be set."""
    run = state.runs[job]
    run.since_us = state.clock[0].now_us
    run.busy = 1
    count_busy(state, job, True)


@kernel
def start(state: EngineState, job: int) -> None:
    """Start ``job`` on the cores of its pieces, under a built-in sharing model."""
    name_parts(state, job)
    begin(state, job)
    set_speeds(state, job)
