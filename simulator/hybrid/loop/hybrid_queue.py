"""The queue: on-demand jobs in front, by arrival; then all others, by arrival."""

from __future__ import annotations

from simulator.hybrid.loop.hybrid_state import BASELINE, ON_DEMAND, WAITING, HybridTables
from simulator.jit.compilation import kernel


@kernel
def _goes_before(world: HybridTables, a: int, b: int) -> bool:
    one, other = world.jobs[a], world.jobs[b]
    if world.rules[0].strategy != BASELINE:
        first = one.kind == ON_DEMAND
        second = other.kind == ON_DEMAND
        if first != second:
            return first
    return one.order < other.order


@kernel
def wait(world: HybridTables, job: int) -> None:
    """Put a job into the queue."""
    world.jobs[job].status = WAITING
    place = world.clock[0].waiting
    while place > 0 and _goes_before(world, job, world.queue[place - 1]):
        world.queue[place] = world.queue[place - 1]
        place -= 1
    world.queue[place] = job
    world.clock[0].waiting += 1


@kernel
def unqueue(world: HybridTables, place: int) -> None:
    """Take the job at a place off the queue."""
    world.clock[0].waiting -= 1
    for later in range(place, world.clock[0].waiting):
        world.queue[later] = world.queue[later + 1]


@kernel
def place_of(world: HybridTables, job: int) -> int:
    """Return the place of a waiting job."""
    place = 0
    while world.queue[place] != job:
        place += 1
    return place
