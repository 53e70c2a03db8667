"""The loop: ends, then nodes whose speed changes, the queue, arrivals; then every job has its new rate."""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.timeshare.fair_rates import settle_rates, stir
from simulator.timeshare.timeshare_admission import admit, forget, serve_queue
from simulator.timeshare.timeshare_nodes import leave, lower_top
from simulator.timeshare.timeshare_state import NEVER, SPAN_US, WHOLE, TimeshareState

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
        while clock.running > 0 and floor.slots[floor.agenda[0]].due_us <= at_us:
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
    if clock.running > 0:
        at_us = min(at_us, floor.slots[floor.agenda[0]].due_us)
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
