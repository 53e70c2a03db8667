"""The event loop of time-shared nodes: jobs come, are admitted to nodes, and leave.

The loop: ends, then nodes whose speed changes, the queue, arrivals; then every job has its new rate.

Which waiting jobs start: when there is memory for them, or first come first served with backfilling.

Nodes by how many jobs they have; jobs come to the emptiest ones that have memory for them, and leave.
"""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.state.node_sets import WORD_BITS, bit_index
from simulator.timeshare.fair_rates import enter, next_end_us, seat, settle_rates, stir, strike
from simulator.timeshare.timeshare_state import (
    MEMORY,
    NEVER,
    OPEN,
    SPAN_US,
    WHOLE,
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
    run.part_at = job.part_at
    run.left = job.work
    run.since_us = clock.now
    floor.rate[slot] = 0
    floor.due_us[slot] = NEVER
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
    clock.progress -= run.nodes * floor.rate[slot]
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
    if jobs > 0 or floor.level[place] != OPEN or floor.rules[0].is_spmd == 0:
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


DONE, MORE, NO_NOISE = range(3)
"""Why the loop came back: all is done, it made so many instants, or it needs more noise."""
STEP_US = 10_000_000
"""Noise is drawn for steps of ten seconds."""


@kernel
def run_floor(floor: TimeshareState, instants: int) -> int:
    """Go on for so many instants at which something happens."""
    clock = floor.clock[0]
    for _ in range(instants):
        at_us = _next_us(floor)
        if at_us == NEVER:
            return DONE
        if 0 < len(floor.noise) == clock.noise_at:
            clock.noise_at = 0
            return NO_NOISE
        _account(floor, at_us)
        clock.now = at_us
        ended = False
        while next_end_us(floor) <= at_us:
            slot = floor.agenda[0]
            if floor.rules[0].is_batch:
                forget(floor, floor.slots[slot].job)
            leave(floor, slot)
            ended = True
        _change_speeds(floor)
        if ended:
            lower_top(floor)
            serve_queue(floor)
        _take_arrivals(floor)
        settle_rates(floor)
    return MORE


@kernel
def _next_us(floor: TimeshareState) -> int:
    """Return the next instant at which something happens; NEVER if all is done."""
    clock = floor.clock[0]
    at_us = NEVER
    if clock.arrived < floor.rules[0].jobs:
        at_us = floor.jobs[floor.order[clock.arrived]].submit_us
    at_us = min(at_us, next_end_us(floor))
    if at_us == NEVER:
        return at_us
    if clock.noisy > 0:
        at_us = min(at_us, clock.quiet_us)
    if clock.noise_at < len(floor.noise):
        at_us = min(at_us, floor.noise[clock.noise_at].at_us)
    return at_us


@kernel
def _account(floor: TimeshareState, until_us: int) -> None:
    """Add up the load and the progress until an instant, by span."""
    clock, spans = floor.clock[0], floor.rules[0].spans
    now = clock.now
    each = clock.progress // floor.rules[0].nodes
    while now < until_us:
        span = now // SPAN_US
        end_us = min(until_us, (span + 1) * SPAN_US)
        if span >= spans:
            return
        floor.spans[span].load_us += clock.load * (end_us - now)
        floor.spans[span].progress_us += each * (end_us - now)
        now = end_us


@kernel
def _change_speeds(floor: TimeshareState) -> None:
    """End the noise of the last step, and begin that of the next."""
    clock = floor.clock[0]
    if clock.noisy > 0 and clock.quiet_us <= clock.now:
        for index in range(clock.noisy):
            _set_speed(floor, floor.noisy[index], WHOLE)
        clock.noisy = 0
    while clock.noise_at < len(floor.noise) and floor.noise[clock.noise_at].at_us <= clock.now:
        place = clock.noise_at
        clock.noise_at = place + 1
        if floor.noise[place].at_us == clock.now:
            node = floor.noise[place].node
            _set_speed(floor, node, floor.noise[place].speed)
            floor.noisy[clock.noisy] = node
            clock.noisy += 1
            clock.quiet_us = clock.now + STEP_US


@kernel
def _set_speed(floor: TimeshareState, node: int, speed: int) -> None:
    floor.nodes[node].capacity = speed
    stir(floor, node)


@kernel
def _take_arrivals(floor: TimeshareState) -> None:
    clock = floor.clock[0]
    while clock.arrived < floor.rules[0].jobs:
        number = floor.order[clock.arrived]
        if floor.jobs[number].submit_us > clock.now:
            return
        if clock.head == clock.tail:
            clock.head = clock.tail = 0
        clock.arrived += 1
        admit(floor, number)
