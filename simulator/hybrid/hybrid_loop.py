"""The event loop of a hybrid pool, its backfilling, and jobs that share nodes.

The event loop.

At one instant: jobs that end, or leave after a warning, by number; plans that are due; reservations that are
over; notices; arrivals. A pass follows each.

A pass of EASY over whole nodes, some of which are reserved.

Heads start while they fit. The first that does not has a reservation: when running jobs, by their requests,
will have given back enough. Another job starts if that is not put off; it may take reserved nodes, which the
head cannot have anyway, and goes when their on-demand job comes.

hybrid-share: an on-demand job starts at once, on nodes that it shares with jobs that run on.

Each of the two on a node gets its share of the time slices of its gang, so both go on, the slower the more
nodes they share with anybody: a job is as fast as its slowest node. A node has one guest at most.
"""

from __future__ import annotations

from simulator.hybrid.hybrid_lifecycles import end, go, hold, leave, occupy_free, unreserve
from simulator.hybrid.hybrid_state import (
    BASELINE,
    COMING,
    FAR_US,
    KNOWN,
    LEAVING,
    NO_JOB,
    ON_DEMAND,
    PLAN,
    RUNNING,
    SHARE,
    HybridTables,
    estimate_us,
    foresee,
    settle,
    unqueue,
    wait,
    wanted_us,
)
from simulator.hybrid.ondemand_jobs import (
    carry_out,
    evict_for,
    expect,
    give_up_waiting,
    meet,
    next_plan,
    plan_for,
    start_demand,
)
from simulator.jit.compilation import kernel


@kernel
def _can_host(world: HybridTables, job: int) -> int:
    """Return on how many nodes of a job a guest fits."""
    entry = world.jobs[job]
    if entry.status != RUNNING or entry.kind == ON_DEMAND or entry.picked:
        return 0
    return entry.nodes - entry.shared


@kernel
def _next_host(world: HybridTables, need: int) -> int:
    """Return the smallest host where all fit, else the largest; none if there is no host.

    A job that shares one node is as slow as one that shares all, so few hosts are best, and full ones. Jobs
    that are slow already come first, where they suffice.
    """
    best = NO_JOB
    most = 0
    for place in range(world.clock[0].active):
        job = world.active[place]
        hosted = _can_host(world, job)
        if hosted == 0:
            continue
        if best == NO_JOB or (hosted > most if most < need else need <= hosted < most):
            best = job
            most = hosted
    return best


@kernel
def _join(world: HybridTables, host: int, guest: int, need: int) -> int:
    """Let an on-demand job be the guest on at most so many nodes of a job; return on how many it is."""
    entry, visitor = world.jobs[host], world.jobs[guest]
    settle(world, entry)
    joined = 0
    for node in range(world.rules[0].nodes):
        if joined == need:
            break
        if world.nodes[node].job == host and world.nodes[node].guest == NO_JOB:
            world.nodes[node].guest = guest
            joined += 1
    entry.shared += joined
    visitor.shared += joined
    visitor.nodes += joined
    foresee(world, entry)
    return joined


@kernel
def start_shared(world: HybridTables, job: int) -> bool:
    """Start an on-demand job, on shared nodes where none are free; return False if there are too few."""
    entry, clock = world.jobs[job], world.clock[0]
    hosted = clock.free
    for place in range(clock.active):
        hosted += _can_host(world, world.active[place])
    if hosted < entry.asked:
        return False
    hold(world, job)
    if clock.now_us == entry.submit_us:
        entry.instant = 1
    occupy_free(world, job, entry.asked, 0)
    entry.missing = 0
    while entry.nodes < entry.asked:
        host = _next_host(world, entry.asked - entry.nodes)
        _join(world, host, job, entry.asked - entry.nodes)
    go(world, job)
    return True


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


STUCK = -1

NOTHING_MORE, CHANGED, PLANNED, TOO_LATE, ANNOUNCED, ARRIVED = range(6)
"""Kinds of events, in their order at one instant."""


@kernel
def _next_job(world: HybridTables) -> int:
    """Return the job to which something happens first, by number of several; or none."""
    best = NO_JOB
    at_us = FAR_US
    for place in range(world.clock[0].active):
        job = world.active[place]
        if world.jobs[job].next_us < at_us:
            best = job
            at_us = world.jobs[job].next_us
    return best


@kernel
def first_over(world: HybridTables) -> int:
    """Return the on-demand job whose reservation is over first; or none."""
    best = NO_JOB
    for place in range(world.clock[0].expected):
        job = world.expected[place]
        entry = world.jobs[job]
        if entry.status != COMING or entry.notice != KNOWN:
            continue
        if best == NO_JOB or entry.predicted_us < world.jobs[best].predicted_us:
            best = job
    return best


@kernel
def _arrive(world: HybridTables) -> None:
    job = world.arrivals[world.clock[0].arrived]
    world.clock[0].arrived += 1
    strategy = world.rules[0].strategy
    if strategy == BASELINE or world.jobs[job].kind != ON_DEMAND:
        wait(world, job)
    elif strategy == SHARE:
        world.clock[0].decisions += 1
        world.jobs[job].missing = world.jobs[job].asked
        if not start_shared(world, job):
            wait(world, job)
    else:
        meet(world, job)


@kernel
def _next_static(world: HybridTables, at_us: int) -> tuple[int, int]:
    """Return what comes before an instant of notices and arrivals, and when."""
    clock = world.clock[0]
    kind = NOTHING_MORE
    if clock.noticed < len(world.notices):
        notice_us = world.jobs[world.notices[clock.noticed]].notice_us
        if notice_us < at_us:
            kind = ANNOUNCED
            at_us = notice_us
    if clock.arrived < world.rules[0].jobs:
        submit_us = world.jobs[world.arrivals[clock.arrived]].submit_us
        if submit_us < at_us:
            kind = ARRIVED
            at_us = submit_us
    return kind, at_us


@kernel
def _next(world: HybridTables) -> tuple[int, int, int]:
    """Return what happens next, to which job or by which plan, and when."""
    kind = NOTHING_MORE
    at_us = FAR_US
    what = _next_job(world)
    if what != NO_JOB:
        kind = CHANGED
        at_us = world.jobs[what].next_us
    plan = next_plan(world)
    if plan != NO_JOB and world.plans[plan].at_us < at_us:
        kind = PLANNED
        at_us = world.plans[plan].at_us
        what = plan
    late = first_over(world)
    if late != NO_JOB and world.jobs[late].predicted_us + world.rules[0].release_us < at_us:
        kind = TOO_LATE
        at_us = world.jobs[late].predicted_us + world.rules[0].release_us
        what = late
    later, then_us = _next_static(world, at_us)
    if later != NOTHING_MORE:
        return later, NO_JOB, then_us
    return kind, what, at_us


@kernel
def _announce(world: HybridTables) -> None:
    demand = world.notices[world.clock[0].noticed]
    world.clock[0].noticed += 1
    if expect(world, demand) and world.rules[0].strategy == PLAN:
        plan_for(world, demand)


@kernel
def _happen(world: HybridTables) -> bool:
    """Let the next thing happen; return False if nothing can."""
    kind, what, at_us = _next(world)
    if kind == NOTHING_MORE:
        return False
    world.clock[0].now_us = at_us
    world.clock[0].events += 1
    if kind == CHANGED:
        if world.jobs[what].status == LEAVING:
            leave(world, what)
        else:
            end(world, what)
    elif kind == PLANNED:
        carry_out(world, what)
    elif kind == TOO_LATE:
        give_up_waiting(world, what)
    elif kind == ANNOUNCED:
        _announce(world)
    else:
        _arrive(world)
    return True


@kernel
def run(world: HybridTables, events: int) -> int:
    """Let so many things happen; return how many jobs have not ended, or ``STUCK``.

    It returns early when one more may not fit in the log, or when it asks for victims, which the
    caller then marks as ``picked``.
    """
    clock, rules = world.clock[0], world.rules[0]
    if clock.asking != NO_JOB:
        demand = clock.asking
        clock.asking = NO_JOB
        evict_for(world, demand)
        schedule(world)
    while events > 0 and clock.unfinished > 0:
        if rules.records and len(world.log) - clock.logged < 4 * clock.active + 64:
            break
        events -= 1
        if not _happen(world):
            return STUCK
        if clock.asking != NO_JOB:
            break
        schedule(world)
    return clock.unfinished
