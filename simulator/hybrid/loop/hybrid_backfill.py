"""A pass of EASY over whole nodes, some of which are reserved.

Heads start while they fit. The first that does not has a reservation: when running jobs, by their requests,
will have given back enough. Another job starts if that is not put off; it may take reserved nodes, which the
head cannot have anyway, and goes when their on-demand job comes.
"""

from __future__ import annotations

from simulator.hybrid.loop.hybrid_lifecycles import go, hold
from simulator.hybrid.loop.hybrid_progress import estimate_us, wanted_us
from simulator.hybrid.loop.hybrid_queue import unqueue
from simulator.hybrid.loop.hybrid_share import start_shared
from simulator.hybrid.loop.hybrid_state import (
    BASELINE,
    COMING,
    FAR_US,
    KNOWN,
    NO_JOB,
    ON_DEMAND,
    SHARE,
    HybridTables,
)
from simulator.hybrid.loop.node_leases import occupy_free, unreserve
from simulator.hybrid.loop.ondemand_jobs import start_demand
from simulator.jit.compilation import kernel


@kernel
def _is_demand(world: HybridTables, job: int) -> bool:
    return world.rules[0].strategy != BASELINE and world.jobs[job].kind == ON_DEMAND


@kernel
def _begin(world: HybridTables, job: int, plain: int, leased: int) -> None:
    """Start a waiting job on so many free nodes, and so many free nodes that are reserved."""
    hold(world, job)
    occupy_free(world, job, plain, leased)
    if leased > 0:
        world.jobs[job].squats = 1
    go(world, job)


@kernel
def _start_head(world: HybridTables, job: int) -> bool:
    """Start the head of the queue if it fits."""
    entry, clock = world.jobs[job], world.clock[0]
    if _is_demand(world, job):
        if world.rules[0].strategy == SHARE:
            if not start_shared(world, job):
                return False
            unqueue(world, 0)
            return True
        if clock.free < entry.missing:
            return False
        unqueue(world, 0)
        start_demand(world, job)
        return True
    if clock.free < entry.least:
        return False
    unqueue(world, 0)
    _begin(world, job, min(entry.asked, clock.free), 0)
    return True


@kernel
def _sink(world: HybridTables, place: int, count: int) -> None:
    """Move the job at a place of the heap, by its estimated end, down to where it belongs."""
    job = world.order[place]
    at_us = world.jobs[job].est_us
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and (
            world.jobs[world.order[child + 1]].est_us < world.jobs[world.order[child]].est_us
        ):
            child += 1
        if world.jobs[world.order[child]].est_us >= at_us:
            break
        world.order[place] = world.order[child]
        place = child
    world.order[place] = job


@kernel
def _heap(world: HybridTables) -> int:
    count = world.clock[0].active
    for place in range(count):
        job = world.active[place]
        world.order[place] = job
        world.jobs[job].est_us = estimate_us(world.jobs[job])
    for place in range(count // 2 - 1, -1, -1):
        _sink(world, place, count)
    return count


@kernel
def _pop(world: HybridTables, count: int) -> None:
    world.order[0] = world.order[count - 1]
    _sink(world, 0, count - 1)


@kernel
def _head_needs(world: HybridTables, head: int) -> int:
    """Return how many nodes must be given back for the head, those that collectors get first included."""
    entry = world.jobs[head]
    need = entry.missing if _is_demand(world, head) else entry.least
    for place in range(world.clock[0].expected):
        other = world.jobs[world.expected[place]]
        if other.status == COMING and other.notice == KNOWN:
            need += max(0, other.missing)
    return need


@kernel
def _reservation(world: HybridTables, head: int) -> tuple[int, int]:
    """Return when the head can start, and how many nodes it leaves then."""
    need = _head_needs(world, head)
    have = world.clock[0].free
    count = _heap(world)
    at_us = FAR_US
    while count > 0:
        first = world.jobs[world.order[0]]
        if at_us != FAR_US and first.est_us > at_us:
            break
        have += first.plain
        if at_us == FAR_US and have >= need:
            at_us = max(first.est_us, world.clock[0].now_us)
        _pop(world, count)
        count -= 1
    return at_us, have - need


@kernel
def _reserved_free(world: HybridTables) -> int:
    """Return how many free nodes are reserved for jobs that have not come."""
    count = 0
    for place in range(world.clock[0].expected):
        entry = world.jobs[world.expected[place]]
        if entry.status == COMING:
            count += entry.got
    return count


@kernel
def _release_behind(world: HybridTables, head: int) -> bool:
    """End the leases of on-demand jobs that wait behind the head; return whether there were any."""
    found = False
    for node in range(world.rules[0].nodes):
        lease = world.nodes[node].lease
        if lease in (NO_JOB, head) or world.jobs[lease].status == COMING:
            continue
        if world.nodes[node].job == NO_JOB:
            unreserve(world, node)
            found = True
    return found


@kernel
def _backfill(world: HybridTables, shadow_us: int, extra: int) -> None:
    """Start the jobs behind the head that do not put it off."""
    clock = world.clock[0]
    reserved = 0 if world.rules[0].no_squatting else _reserved_free(world)
    place = 1
    while place < clock.waiting and clock.free + reserved > 0:
        job = world.queue[place]
        entry = world.jobs[job]
        demand = _is_demand(world, job)
        own = 0
        leased = reserved
        if demand:
            own = entry.asked - entry.missing
            leased = 0
        nodes = min(entry.asked, own + clock.free + leased)
        if nodes < entry.least:
            place += 1
            continue
        ends_us = clock.now_us + wanted_us(world, entry, nodes)
        most = clock.free
        if ends_us > shadow_us:
            most = min(most, max(0, extra))
            nodes = min(entry.asked, own + most + leased)
            if nodes < entry.least:
                place += 1
                continue
            ends_us = clock.now_us + wanted_us(world, entry, nodes)
        plain = min(nodes - own, most)
        unqueue(world, place)
        if demand:
            start_demand(world, job)
        else:
            _begin(world, job, plain, nodes - plain)
            reserved -= nodes - plain
        if ends_us > shadow_us:
            extra -= plain


@kernel
def schedule(world: HybridTables) -> None:
    """Make a pass."""
    while world.clock[0].waiting > 0 and _start_head(world, world.queue[0]):
        pass
    if world.clock[0].waiting == 0:
        return
    head = world.queue[0]
    shadow_us, extra = _reservation(world, head)
    if shadow_us == FAR_US and _is_demand(world, head) and _release_behind(world, head):
        while world.clock[0].waiting > 0 and _start_head(world, world.queue[0]):
            pass
        if world.clock[0].waiting == 0:
            return
        shadow_us, extra = _reservation(world, world.queue[0])
    if world.clock[0].waiting > 1:
        _backfill(world, shadow_us, extra)
