"""Nodes by how many jobs they have; jobs come to the emptiest ones that have memory for them, and leave."""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.state.node_sets import WORD_BITS, bit_index
from simulator.timeshare.fair_rates import seat, stir
from simulator.timeshare.rate_agenda import enter, strike
from simulator.timeshare.timeshare_state import (
    MEMORY,
    NEVER,
    OPEN,
    SlotRecord,
    TimeshareJobRecord,
    TimeshareNodeRecord,
    TimeshareState,
)


@kernel
def choose(floor: TimeshareState, number: int) -> bool:
    """Find nodes for a job: least jobs, then lowest index, of those with memory and a slot for one more.

    Returns whether there are enough; they are in ``part`` then.
    """
    job: TimeshareJobRecord = floor.jobs[number]
    wanted, need, at = job.nodes, job.memory, job.part_at
    words = floor.rules[0].words
    for load in range(min(floor.clock[0].top, floor.rules[0].depth - 1) + 1):
        for word in range(words):
            rest = floor.bucket[load * words + word]
            while rest != 0:
                bit = rest & -rest
                rest ^= bit
                place = word * WORD_BITS + bit_index(bit)
                if floor.nodes[place].free < need:
                    continue
                floor.part[at] = place
                at += 1
                wanted -= 1
                if wanted == 0:
                    return True
    return False


@kernel
def join(floor: TimeshareState, number: int) -> None:
    """Start a job on the nodes that were chosen."""
    clock = floor.clock[0]
    job: TimeshareJobRecord = floor.jobs[number]
    if clock.freed > 0:
        clock.freed -= 1
        slot = floor.freed[clock.freed]
    else:
        slot = clock.fresh
        clock.fresh += 1
    job.start_us = clock.now
    run: SlotRecord = floor.slots[slot]
    run.job = number
    run.nodes = job.nodes
    run.rate = 0
    run.left = job.work
    run.since_us = clock.now
    run.due_us = NEVER
    run.total = 0
    clock.events += 1
    clock.load += job.nodes
    enter(floor, slot)
    for at in range(job.part_at, job.part_at + job.nodes):
        place = floor.part[at]
        floor.members[seat(floor, place, floor.nodes[place].count)] = slot
        run.total += floor.nodes[place].share
        _shift(floor, place, 1, -job.memory)


@kernel
def leave(floor: TimeshareState, slot: int) -> None:
    """End a job."""
    clock = floor.clock[0]
    run: SlotRecord = floor.slots[slot]
    job: TimeshareJobRecord = floor.jobs[run.job]
    job.end_us = clock.now
    clock.progress -= run.nodes * run.rate
    clock.load -= run.nodes
    clock.events += 1
    strike(floor, slot)
    for at in range(job.part_at, job.part_at + job.nodes):
        place = floor.part[at]
        index = 0
        while floor.members[seat(floor, place, index)] != slot:
            index += 1
        last = floor.members[seat(floor, place, floor.nodes[place].count - 1)]
        floor.members[seat(floor, place, index)] = last
        _shift(floor, place, -1, job.memory)
    floor.freed[clock.freed] = slot
    clock.freed += 1


@kernel
def _shift(floor: TimeshareState, place: int, jobs: int, memory: int) -> None:
    """Give a node one job more or less."""
    clock, words, depth = floor.clock[0], floor.rules[0].words, floor.rules[0].depth
    node: TimeshareNodeRecord = floor.nodes[place]
    before, after = node.count, node.count + jobs
    word = place // WORD_BITS
    bit = 1 << (place - word * WORD_BITS)
    floor.bucket[before * words + word] ^= bit
    floor.bucket[after * words + word] ^= bit
    if before < depth:
        floor.open_nodes[node.free] -= 1
    node.free += memory
    node.count = after
    if after < depth:
        floor.open_nodes[node.free] += 1
    clock.top = max(clock.top, after)
    clock.most = max(clock.most, after)
    if before == 0:
        clock.idle -= 1
    if after == 0:
        clock.idle += 1
    if jobs > 0 or node.level != OPEN or floor.rules[0].is_spmd == 0:
        stir(floor, place)


@kernel
def count_open(floor: TimeshareState) -> None:
    """Set ``above[m]`` to how many nodes could take a job that needs ``m`` of memory."""
    floor.above[MEMORY + 1] = 0
    for memory in range(MEMORY, -1, -1):
        floor.above[memory] = floor.above[memory + 1] + floor.open_nodes[memory]


@kernel
def lower_top(floor: TimeshareState) -> None:
    """Forget loads that no node has any more."""
    clock, words = floor.clock[0], floor.rules[0].words
    while clock.top > 0:
        base = clock.top * words
        for word in range(words):
            if floor.bucket[base + word] != 0:
                return
        clock.top -= 1
