"""The event queue (what is next for running jobs), the job queue, the running set, and timers.

The agenda (an indexed binary heap of running jobs by what is next for them), the queue, the running set.

Order of the agenda: time, then ends before changes of phase, then job number. The kernels take a
``Timeline``, because a projection of the future has an agenda of its own.

Timers: an indexed heap by time, then by the order in which they were set.
"""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.jit.field_records import RecordTable
from simulator.state.engine_state import NEVER, EngineState, RunRecord, Timeline
from simulator.state.lifecycle_state import LifecycleTables, TimerRecord


@kernel
def present(state: EngineState) -> Timeline:
    """Return the real course of things."""
    return Timeline(state.clock, state.runs, state.lists)


@kernel
def _comes_first(line: Timeline, a: int, b: int) -> bool:
    """Return whether the next event of job ``a`` precedes that of job ``b``."""
    first: RunRecord = line.runs[a]
    second: RunRecord = line.runs[b]
    if first.next_us != second.next_us:
        return first.next_us < second.next_us
    if first.last != second.last:
        return first.last > second.last
    return a < b


@kernel
def _rise(line: Timeline, place: int) -> None:
    runs, lists = line.runs, line.lists
    job = lists[place].agenda
    while place > 0:
        parent = (place - 1) >> 1
        above = lists[parent].agenda
        if not _comes_first(line, job, above):
            break
        lists[place].agenda = above
        runs[above].agenda_at = place
        place = parent
    lists[place].agenda = job
    runs[job].agenda_at = place


@kernel
def _sink(line: Timeline, place: int) -> None:
    runs, lists = line.runs, line.lists
    size = line.clock[0].agenda
    job = lists[place].agenda
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _comes_first(line, lists[child + 1].agenda, lists[child].agenda):
            child += 1
        below = lists[child].agenda
        if not _comes_first(line, below, job):
            break
        lists[place].agenda = below
        runs[below].agenda_at = place
        place = child
    lists[place].agenda = job
    runs[job].agenda_at = place


@kernel
def enter_agenda(line: Timeline, job: int) -> None:
    """Put ``job`` on the agenda at its ``next_us``."""
    place = line.clock[0].agenda
    line.clock[0].agenda = place + 1
    line.lists[place].agenda = job
    _rise(line, place)


@kernel
def move_in_agenda(line: Timeline, job: int) -> None:
    """Restore the order after the key of ``job`` changed."""
    _rise(line, line.runs[job].agenda_at)
    _sink(line, line.runs[job].agenda_at)


@kernel
def leave_agenda(line: Timeline, job: int) -> None:
    """Take ``job`` off the agenda."""
    place = line.runs[job].agenda_at
    last = line.clock[0].agenda - 1
    line.clock[0].agenda = last
    line.runs[job].agenda_at = NEVER
    if place != last:
        moved = line.lists[last].agenda
        line.lists[place].agenda = moved
        line.runs[moved].agenda_at = place
        move_in_agenda(line, moved)


@kernel
def queue_behind(state: EngineState, job: int, before: int) -> None:
    """Put ``job`` into the queue behind another; behind the index after the last job, it is the first."""
    runs = state.runs
    after = runs[before].queue_next
    runs[before].queue_next = job
    runs[job].queue_prev = before
    runs[job].queue_next = after
    runs[after].queue_prev = job
    state.clock[0].waiting += 1


@kernel
def enter_queue(state: EngineState, job: int) -> None:
    """Append ``job`` to the queue."""
    queue_behind(state, job, state.runs[state.rules[0].jobs].queue_prev)


@kernel
def release_dependents(state: EngineState, job: int) -> None:
    """Put the jobs that depend on ``job``, which ends now, on the list of arrivals."""
    if state.clock[0].unreleased == 0:
        return
    now_us = state.clock[0].now_us
    dependent: int = state.dependencies[job].first
    while dependent != NEVER:
        link = state.dependencies[dependent]
        asked = state.jobs[dependent]
        if link.think_us != NEVER:
            asked.submit_us = now_us + link.think_us
        elif asked.submit_us < now_us:
            asked.submit_us = now_us
        _enter_arrivals(state, dependent)
        dependent = link.next


@kernel
def _enter_arrivals(state: EngineState, job: int) -> None:
    """Put ``job`` on the list of arrivals, before which there is a free place for it."""
    jobs, lists = state.jobs, state.lists
    submit_us = jobs[job].submit_us
    state.clock[0].unreleased -= 1
    state.clock[0].arrived -= 1
    place = state.clock[0].arrived
    while place + 1 < state.rules[0].jobs:
        other = lists[place + 1].arrival
        if jobs[other].submit_us > submit_us or (jobs[other].submit_us == submit_us and other > job):
            break
        lists[place].arrival = other
        place += 1
    lists[place].arrival = job


@kernel
def leave_queue(state: EngineState, job: int) -> None:
    """Take ``job`` out of the queue."""
    runs = state.runs
    before = runs[job].queue_prev
    after = runs[job].queue_next
    runs[before].queue_next = after
    runs[after].queue_prev = before
    state.clock[0].waiting -= 1


@kernel
def first_waiting(state: EngineState) -> int:
    """Return the head of the queue; if no job waits, the index after the last job."""
    return state.runs[state.rules[0].jobs].queue_next


@kernel
def enter_running(state: EngineState, job: int) -> None:
    """Add ``job`` to the set of running jobs."""
    place = state.clock[0].active
    state.lists[place].running = job
    state.runs[job].running_at = place
    state.clock[0].active = place + 1


@kernel
def leave_running(state: EngineState, job: int) -> None:
    """Remove ``job`` from the set of running jobs."""
    place = state.runs[job].running_at
    last = state.clock[0].active - 1
    moved = state.lists[last].running
    state.lists[place].running = moved
    state.runs[moved].running_at = place
    state.runs[job].running_at = NEVER
    state.clock[0].active = last


EXPIRY, TICK, NOTICE, CHECKPOINT = range(4)
KINDS = ("expiry", "tick", "notice", "checkpoint")
"""Kinds of timer that have a name; ``expiry`` ends the reservations of its job."""


@kernel
def _precedes(timers: RecordTable[TimerRecord], a: int, b: int) -> bool:
    if timers[a].at_us != timers[b].at_us:
        return timers[a].at_us < timers[b].at_us
    return timers[a].number < timers[b].number


@kernel
def _put(timers: RecordTable[TimerRecord], place: int, slot: int) -> None:
    timers[place].heap = slot
    timers[slot].heap_at = place


@kernel
def _sift(lifecycles: LifecycleTables, place: int) -> None:
    """Move the slot at ``place`` of the heap to where it belongs."""
    timers = lifecycles.timers
    count = lifecycles.clock[0].ticking
    slot = timers[place].heap
    while place > 0 and _precedes(timers, slot, timers[(place - 1) >> 1].heap):
        _put(timers, place, timers[(place - 1) >> 1].heap)
        place = (place - 1) >> 1
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and _precedes(timers, timers[child + 1].heap, timers[child].heap):
            child += 1
        if not _precedes(timers, timers[child].heap, slot):
            break
        _put(timers, place, timers[child].heap)
        place = child
    _put(timers, place, slot)


@kernel
def set_timer(lifecycles: LifecycleTables, at_us: int, kind: int, about: int) -> int:
    """Set a timer about a job (or ``NEVER``); return its slot, or ``NEVER`` if there is none left."""
    place = lifecycles.clock[0].ticking
    if place == len(lifecycles.timers):
        return NEVER
    slot = lifecycles.timers[place].heap
    timer = lifecycles.timers[slot]
    timer.at_us = at_us
    timer.kind = kind
    timer.about = about
    timer.number = lifecycles.clock[0].timers_set
    lifecycles.clock[0].timers_set += 1
    lifecycles.clock[0].ticking += 1
    timer.heap_at = place
    _sift(lifecycles, place)
    return slot


@kernel
def cancel_timer(lifecycles: LifecycleTables, slot: int) -> None:
    """Take a timer that ticks off the heap; its slot is free."""
    timers = lifecycles.timers
    place = timers[slot].heap_at
    last = lifecycles.clock[0].ticking - 1
    moved = timers[last].heap
    lifecycles.clock[0].ticking = last
    timers[last].heap = slot
    timers[slot].heap_at = NEVER
    if place != last:
        _put(timers, place, moved)
        _sift(lifecycles, place)


@kernel
def first_timer(lifecycles: LifecycleTables) -> int:
    """Return the slot of the timer that rings next; there is one."""
    return lifecycles.timers[0].heap
