"""Timers: an indexed heap by time, then by the order in which they were set."""

from __future__ import annotations

from simulator.engine.kernels.compilation import kernel
from simulator.engine.kernels.field_records import RecordTable
from simulator.engine.state.engine_state import NEVER
from simulator.engine.state.lifecycle_state import Lives, TimerRecord

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
def _sift(lives: Lives, place: int) -> None:
    """Move the slot at ``place`` of the heap to where it belongs."""
    timers = lives.timers
    count = lives.clock[0].ticking
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
def set_timer(lives: Lives, at_us: int, kind: int, about: int) -> int:
    """Set a timer about a job (or ``NEVER``); return its slot, or ``NEVER`` if there is none left."""
    place = lives.clock[0].ticking
    if place == len(lives.timers):
        return NEVER
    slot = lives.timers[place].heap
    timer = lives.timers[slot]
    timer.at_us = at_us
    timer.kind = kind
    timer.about = about
    timer.number = lives.clock[0].timers_set
    lives.clock[0].timers_set += 1
    lives.clock[0].ticking += 1
    timer.heap_at = place
    _sift(lives, place)
    return slot


@kernel
def cancel_timer(lives: Lives, slot: int) -> None:
    """Take a timer that ticks off the heap; its slot is free."""
    timers = lives.timers
    place = timers[slot].heap_at
    last = lives.clock[0].ticking - 1
    moved = timers[last].heap
    lives.clock[0].ticking = last
    timers[last].heap = slot
    timers[slot].heap_at = NEVER
    if place != last:
        _put(timers, place, moved)
        _sift(lives, place)


@kernel
def first_timer(lives: Lives) -> int:
    """Return the slot of the timer that rings next; there is one."""
    return lives.timers[0].heap
