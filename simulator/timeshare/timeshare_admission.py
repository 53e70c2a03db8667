"""Which waiting jobs start: when there is memory for them, or first come first served with backfilling."""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.timeshare.timeshare_nodes import choose, count_open, join
from simulator.timeshare.timeshare_state import NEVER, TimeshareJobRecord, TimeshareState

GONE = -1
"""Placeholder in the queue of a job that has started ahead of others."""


@kernel
def admit(floor: TimeshareState, number: int) -> None:
    """Start a job that arrives, or let it wait."""
    clock = floor.clock[0]
    waits = clock.head < clock.tail
    if floor.rules[0].is_batch:
        if (waits and _may_pass(floor, number)) or (not waits and floor.jobs[number].nodes <= clock.idle):
            _start_batch(floor, number)
        else:
            _enqueue(floor, number)
            if not waits:
                _foresee(floor)
    elif not (waits and floor.rules[0].in_order) and choose(floor, number):
        join(floor, number)
    else:
        _enqueue(floor, number)


@kernel
def _enqueue(floor: TimeshareState, number: int) -> None:
    clock = floor.clock[0]
    floor.queue[clock.tail] = number
    clock.tail += 1
    clock.delayed += 1


@kernel
def serve_queue(floor: TimeshareState) -> None:
    """Start the waiting jobs that can, after others have ended."""
    clock = floor.clock[0]
    if clock.head == clock.tail:
        return
    if floor.rules[0].is_batch:
        _serve_batch(floor)
    else:
        _serve_sharing(floor)


@kernel
def _serve_sharing(floor: TimeshareState) -> None:
    """Start each job that has memory, in the order of the queue."""
    clock = floor.clock[0]
    count_open(floor)
    kept = clock.head
    blocked = False
    for place in range(clock.head, clock.tail):
        number = floor.queue[place]
        job: TimeshareJobRecord = floor.jobs[number]
        if not blocked and floor.above[job.memory] >= job.nodes and choose(floor, number):
            join(floor, number)
            count_open(floor)
            continue
        blocked = floor.rules[0].in_order != 0
        floor.queue[kept] = number
        kept += 1
    clock.tail = kept


@kernel
def _serve_batch(floor: TimeshareState) -> None:
    """Start heads while they fit, then jobs that ask for less time than the head must wait."""
    clock = floor.clock[0]
    while clock.head < clock.tail:
        number = floor.queue[clock.head]
        if number != GONE:
            if floor.jobs[number].nodes > clock.idle:
                break
            _start_batch(floor, number)
        clock.head += 1
    if clock.head == clock.tail:
        return
    _foresee(floor)
    if not floor.rules[0].backfills or clock.shadow_us <= clock.now:
        return
    kept = clock.head + 1
    for place in range(clock.head + 1, clock.tail):
        if clock.idle == 0:  # what is behind stays where it is
            for hole in range(kept, place):
                floor.queue[hole] = GONE
            return
        number = floor.queue[place]
        if number == GONE:
            continue
        if _may_pass(floor, number):
            _start_batch(floor, number)
        else:
            floor.queue[kept] = number
            kept += 1
    clock.tail = kept


@kernel
def _may_pass(floor: TimeshareState, number: int) -> bool:
    """Return whether a job behind the head may start."""
    clock = floor.clock[0]
    job: TimeshareJobRecord = floor.jobs[number]
    if not floor.rules[0].backfills or job.nodes > clock.idle:
        return False
    return job.request_us < clock.shadow_us - clock.now


@kernel
def _start_batch(floor: TimeshareState, number: int) -> None:
    """Start a job, and note by when it has to end, in order."""
    clock, ends = floor.clock[0], floor.ends
    choose(floor, number)
    join(floor, number)
    end_us = clock.now + floor.jobs[number].request_us
    place = clock.ends
    clock.ends = place + 1
    while place > 0 and ends[place - 1].end_us > end_us:
        ends[place].end_us = ends[place - 1].end_us
        ends[place].job = ends[place - 1].job
        place -= 1
    ends[place].end_us = end_us
    ends[place].job = number


@kernel
def forget(floor: TimeshareState, number: int) -> None:
    """Strike a job that has ended off those by which the head's wait is reckoned."""
    clock, ends = floor.clock[0], floor.ends
    end_us = floor.jobs[number].start_us + floor.jobs[number].request_us
    low, high = 0, clock.ends
    while low < high:
        middle = (low + high) >> 1
        if ends[middle].end_us < end_us:
            low = middle + 1
        else:
            high = middle
    while ends[low].job != number:
        low += 1
    clock.ends -= 1
    for place in range(low, clock.ends):
        ends[place].end_us = ends[place + 1].end_us
        ends[place].job = ends[place + 1].job


@kernel
def _foresee(floor: TimeshareState) -> None:
    """Reckon when the head can start if all that run take the time they asked for."""
    clock = floor.clock[0]
    missing = floor.jobs[floor.queue[clock.head]].nodes - clock.idle
    clock.shadow_us = NEVER
    for place in range(clock.ends):
        missing -= floor.jobs[floor.ends[place].job].nodes
        if missing <= 0:
            clock.shadow_us = floor.ends[place].end_us
            return
