"""Two binary heaps: running jobs by when they are done, and the levels at which rates are settled."""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.timeshare.timeshare_state import SlotRecord, TimeshareState

SHIFT = 40
"""A key is a level and, in its low bits, whose it is."""


@kernel
def _earlier(floor: TimeshareState, one: int, other: int) -> bool:
    first: SlotRecord = floor.slots[one]
    second: SlotRecord = floor.slots[other]
    if first.due_us != second.due_us:
        return first.due_us < second.due_us
    return first.job < second.job


@kernel
def _rise(floor: TimeshareState, place: int) -> None:
    agenda, slots = floor.agenda, floor.slots
    slot = agenda[place]
    while place > 0:
        parent = (place - 1) >> 1
        above = agenda[parent]
        if not _earlier(floor, slot, above):
            break
        agenda[place] = above
        slots[above].place = place
        place = parent
    agenda[place] = slot
    slots[slot].place = place


@kernel
def _sink(floor: TimeshareState, place: int) -> None:
    agenda, slots = floor.agenda, floor.slots
    size = floor.clock[0].running
    slot = agenda[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _earlier(floor, agenda[child + 1], agenda[child]):
            child += 1
        below = agenda[child]
        if not _earlier(floor, below, slot):
            break
        agenda[place] = below
        slots[below].place = place
        place = child
    agenda[place] = slot
    slots[slot].place = place


@kernel
def enter(floor: TimeshareState, slot: int) -> None:
    """Put a running job on the agenda."""
    place = floor.clock[0].running
    floor.clock[0].running = place + 1
    floor.agenda[place] = slot
    _rise(floor, place)


@kernel
def moved(floor: TimeshareState, slot: int) -> None:
    """Restore the order after ``due_us`` of a job changed."""
    _rise(floor, floor.slots[slot].place)
    _sink(floor, floor.slots[slot].place)


@kernel
def strike(floor: TimeshareState, slot: int) -> None:
    """Take a job off the agenda."""
    size = floor.clock[0].running - 1
    floor.clock[0].running = size
    place = floor.slots[slot].place
    if place == size:
        return
    last = floor.agenda[size]
    floor.agenda[place] = last
    floor.slots[last].place = place
    moved(floor, last)


@kernel
def push_level(floor: TimeshareState, level: int, whose: int) -> None:
    """Note that something may be settled at a level."""
    keys = floor.levels
    place = floor.clock[0].levels
    floor.clock[0].levels = place + 1
    key = (level << SHIFT) | whose
    while place > 0:
        parent = (place - 1) >> 1
        if keys[parent] <= key:
            break
        keys[place] = keys[parent]
        place = parent
    keys[place] = key


@kernel
def pop_level(floor: TimeshareState) -> int:
    """Return the key of the lowest level, and forget it."""
    keys = floor.levels
    found = keys[0]
    size = floor.clock[0].levels - 1
    floor.clock[0].levels = size
    if size == 0:
        return found
    key = keys[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place] = keys[child]
        place = child
    keys[place] = key
    return found
