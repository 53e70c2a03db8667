"""Max-min fair rates of jobs on shared nodes, and the agenda of changes of them.

Rates of jobs: max-min fair with one rate a job, or the mean of its nodes' shares.

*SPMD.* All rates rise together until a node is full; its jobs stay there, the others rise on. So each job has
a node that holds it: one that is full, and on which no job is faster. The level of a full node is the rate of
those that it holds. A change on some nodes is worked in without looking at the rest: those nodes are dirty;
going up through the levels, a dirty node that is full at a level holds its jobs there, and a job at its old
rate stays there if a node that is not dirty holds it. Only where a job's rate changes its other nodes become
dirty, and their rates below that level are final: all of them before a job rises, and once it is slower those
that hold jobs. A node that holds none and has one job less, or a slower one, need not be looked at.

*Otherwise* every node's equal share counts: a job's rate is their mean.

Two binary heaps: running jobs by when they are done at the earliest (a job that becomes slower is moved only
once it is at the top), and the levels at which rates are settled.
"""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.timeshare.timeshare_state import (
    NEVER,
    OPEN,
    SlotRecord,
    TimeshareNodeRecord,
    TimeshareState,
    TouchRecord,
)

SHIFT = 40
"""A key is a level and, in its low bits, whose it is."""


@kernel
def _earlier(floor: TimeshareState, one: int, other: int) -> bool:
    first, second = floor.due_us[one], floor.due_us[other]
    if first != second:
        return first < second
    return floor.slots[one].job < floor.slots[other].job


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
def _end_us(floor: TimeshareState, slot: int) -> int:
    """Return when a job is done if its rate stays."""
    run: SlotRecord = floor.slots[slot]
    rate, tick_us = floor.rate[slot], floor.rules[0].tick_us
    end_us = run.since_us + (run.left + rate - 1) // rate
    if tick_us > 0:
        end_us = (end_us + tick_us - 1) // tick_us * tick_us
    return end_us


@kernel
def next_end_us(floor: TimeshareState) -> int:
    """Bring the job that is done next to the top of the agenda; return when it is, NEVER if none runs."""
    while floor.clock[0].running > 0:
        slot = floor.agenda[0]
        end_us = _end_us(floor, slot)
        if floor.due_us[slot] == end_us:
            return end_us
        floor.due_us[slot] = end_us
        _sink(floor, 0)
    return NEVER


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
    _rise(floor, place)
    _sink(floor, floor.slots[last].place)


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
def _replace_lowest(floor: TimeshareState, key: int) -> None:
    """Put another key in the place of that of the lowest level."""
    keys, size = floor.levels, floor.clock[0].levels
    keys[size] = key
    place = 0
    child = 1
    while child < size:
        child += keys[child + 1] < keys[child]
        if keys[child] >= key:
            break
        keys[place] = keys[child]
        place = child
        child = 2 * place + 1
    keys[place] = key


@kernel
def _drop_lowest(floor: TimeshareState) -> None:
    size = floor.clock[0].levels - 1
    floor.clock[0].levels = size
    if size > 0:
        _replace_lowest(floor, floor.levels[size])


@kernel
def seat(floor: TimeshareState, place: int, index: int) -> int:
    """Return the position in ``members`` of the job that is number ``index`` on a node."""
    near = floor.rules[0].near
    if index < near:
        return place * near + index
    return floor.rules[0].nodes * near + place * (floor.rules[0].depth - near) + index - near


@kernel
def stir(floor: TimeshareState, node: int) -> None:
    """Note that who runs on a node, or its speed, has changed."""
    clock = floor.clock[0]
    pending = clock.stamp + 1
    if floor.nodes[node].stirred != pending:
        floor.nodes[node].stirred = pending
        floor.stirred[clock.stirred] = node
        clock.stirred += 1


@kernel
def settle_rates(floor: TimeshareState) -> None:
    """Give every job its rate after the changes of an instant."""
    clock = floor.clock[0]
    if clock.stirred == 0:
        return
    clock.stamp += 1
    if floor.rules[0].is_spmd:
        _fill(floor)
    else:
        _average(floor)
    clock.stirred = 0


@kernel
def _set_rate(floor: TimeshareState, slot: int, rate: int) -> None:
    """Let a job go on at another rate from now."""
    clock = floor.clock[0]
    run: SlotRecord = floor.slots[slot]
    now = clock.now
    before = floor.rate[slot]
    left = max(run.left - before * (now - run.since_us), 0)
    clock.progress += run.nodes * (rate - before)
    run.left = left
    run.since_us = now
    floor.rate[slot] = rate
    due_us = _end_us(floor, slot)
    if due_us < floor.due_us[slot]:
        floor.due_us[slot] = due_us
        _rise(floor, run.place)


@kernel
def _fill(floor: TimeshareState) -> None:
    clock, nodes = floor.clock[0], floor.rules[0].nodes
    stamp = clock.stamp
    clock.touches = clock.levels = clock.theta = clock.open = 0
    for index in range(clock.stirred):
        _make_dirty(floor, floor.stirred[index])
    while clock.open > 0:
        key = floor.levels[0]
        level = key >> SHIFT
        whose = key - (level << SHIFT)
        clock.theta = max(clock.theta, level)
        if whose >= nodes:
            _drop_lowest(floor)
            if floor.seen[whose - nodes] != 2 * stamp + 1:
                _keep_or_raise(floor, whose - nodes)
            continue
        node: TimeshareNodeRecord = floor.nodes[whose]
        if node.loose == 0:
            _drop_lowest(floor)
            continue
        full = (node.capacity - node.fixed) // node.loose
        if full > level:
            _replace_lowest(floor, (full << SHIFT) | whose)
        else:
            _drop_lowest(floor)
            _hold(floor, whose, full)


@kernel
def _make_dirty(floor: TimeshareState, place: int) -> None:
    """Look at all jobs of a node again, from the present level up.

    Jobs at a lower rate stay as they are: those that rise have made all their nodes dirty before.
    """
    clock, rules = floor.clock[0], floor.rules[0]
    stamp, theta, first = clock.stamp, clock.theta, clock.touches
    near, looked = rules.near, 2 * stamp
    at = place * near
    touches = first
    node: TimeshareNodeRecord = floor.nodes[place]
    floor.dirty[place] = stamp
    floor.level[place] = OPEN
    fixed = 0
    for index in range(node.count):  # without branches that depend on rates: they are hard to predict
        if index == near:
            at = rules.nodes * near + place * (rules.depth - near) - near
        slot = floor.members[at + index]
        rate = floor.rate[slot]
        is_open = (rate >= theta) & (floor.seen[slot] <= looked)
        floor.touches[touches].slot = slot
        touches += is_open
        fixed += rate * (1 - is_open)
    for number in range(first, touches):
        touch: TouchRecord = floor.touches[number]
        slot = touch.slot
        run: SlotRecord = floor.slots[slot]
        if floor.seen[slot] < looked:
            floor.seen[slot] = looked
            clock.open += 1
            run.touch = -1
            if floor.rate[slot] > 0:
                push_level(floor, floor.rate[slot], rules.nodes + slot)
        touch.node = place
        touch.before = run.touch
        run.touch = number
    clock.touches = touches
    node.touch = first
    node.looks = node.loose = touches - first
    node.fixed = fixed
    if touches > first:
        push_level(floor, (node.capacity - fixed) // (touches - first), place)


@kernel
def _hold(floor: TimeshareState, place: int, level: int) -> None:
    """Leave the jobs of a full node at its level."""
    settled, first = 2 * floor.clock[0].stamp + 1, floor.nodes[place].touch
    floor.level[place] = level
    for touch in range(first, first + floor.nodes[place].looks):
        slot = floor.touches[touch].slot
        if floor.seen[slot] != settled:
            _freeze(floor, slot, level, place)


@kernel
def _freeze(floor: TimeshareState, slot: int, rate: int, place: int) -> None:
    """Leave a job at a rate, held by a node."""
    run: SlotRecord = floor.slots[slot]
    floor.seen[slot] = 2 * floor.clock[0].stamp + 1
    floor.clock[0].open -= 1
    run.holder = place
    before = floor.rate[slot]
    if rate != before:
        _set_rate(floor, slot, rate)
    touch = run.touch
    while touch >= 0:
        node: TimeshareNodeRecord = floor.nodes[floor.touches[touch].node]
        node.fixed += rate
        node.loose -= 1
        touch = floor.touches[touch].before
    if rate < before:
        _let_others_rise(floor, slot)


@kernel
def _let_others_rise(floor: TimeshareState, slot: int) -> None:
    """Look again at the nodes that held others for a job that is slower now."""
    stamp, first = floor.clock[0].stamp, floor.slots[slot].part_at
    for at in range(first, first + floor.slots[slot].nodes):
        place = floor.part[at]
        if floor.level[place] != OPEN and floor.dirty[place] != stamp:
            _make_dirty(floor, place)


@kernel
def _make_all_dirty(floor: TimeshareState, slot: int) -> None:
    stamp, first = floor.clock[0].stamp, floor.slots[slot].part_at
    for at in range(first, first + floor.slots[slot].nodes):
        if floor.dirty[floor.part[at]] != stamp:
            _make_dirty(floor, floor.part[at])


@kernel
def _keep_or_raise(floor: TimeshareState, slot: int) -> None:
    """Leave a job at its old rate if a node that is not dirty holds it there; else it goes up."""
    run: SlotRecord = floor.slots[slot]
    stamp, rate = floor.clock[0].stamp, floor.rate[slot]
    place = run.holder
    if floor.dirty[place] == stamp or floor.level[place] != rate:
        place = -1
        for at in range(run.part_at, run.part_at + run.nodes):
            node = floor.part[at]
            if floor.level[node] == rate and floor.dirty[node] != stamp:
                place = node
                break
    if place >= 0:
        _freeze(floor, slot, rate, place)
    else:
        _make_all_dirty(floor, slot)


@kernel
def _average(floor: TimeshareState) -> None:
    clock = floor.clock[0]
    for index in range(clock.stirred):
        place = floor.stirred[index]
        node: TimeshareNodeRecord = floor.nodes[place]
        share = node.capacity // max(node.count, 1)
        more = share - node.share
        node.share = share
        for member in range(node.count):
            floor.slots[floor.members[seat(floor, place, member)]].total += more
    for index in range(clock.stirred):
        place = floor.stirred[index]
        for member in range(floor.nodes[place].count):
            slot = floor.members[seat(floor, place, member)]
            run: SlotRecord = floor.slots[slot]
            if floor.seen[slot] < 2 * clock.stamp:
                floor.seen[slot] = 2 * clock.stamp
                rate = run.total // run.nodes
                if rate != floor.rate[slot]:
                    _set_rate(floor, slot, rate)
