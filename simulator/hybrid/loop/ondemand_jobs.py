"""What an on-demand job does to the others: from its notice to its start."""

from __future__ import annotations

from simulator.hybrid.loop.hybrid_lifecycles import forget_loan, go, hold, lend, preempt, shrink
from simulator.hybrid.loop.hybrid_progress import overhead_at
from simulator.hybrid.loop.hybrid_queue import wait
from simulator.hybrid.loop.hybrid_state import (
    COLLECT,
    COMING,
    FAR_US,
    GATHERING,
    KNOWN,
    MALLEABLE,
    NO_JOB,
    NO_NOTICE,
    ON_DEMAND,
    PAST,
    PLAN,
    RUNNING,
    WAITING,
    HybridTables,
)
from simulator.hybrid.loop.node_leases import occupy_free, reserve_free, reserve_of, unreserve
from simulator.jit.compilation import kernel


@kernel
def expect(world: HybridTables, demand: int) -> bool:
    """Hear the notice of an on-demand job: reserve what is free; return whether its strategy reserves."""
    if world.rules[0].strategy not in (COLLECT, PLAN) or world.jobs[demand].status != COMING:
        return False
    entry = world.jobs[demand]
    entry.notice = KNOWN
    entry.missing = entry.asked
    world.expected[world.clock[0].expected] = demand
    world.clock[0].expected += 1
    reserve_free(world, demand)
    return True


@kernel
def _forget_expected(world: HybridTables, demand: int) -> None:
    count = world.clock[0].expected
    kept = 0
    for place in range(count):
        if world.expected[place] != demand:
            world.expected[kept] = world.expected[place]
            kept += 1
    world.clock[0].expected = kept


@kernel
def settle_squatters(world: HybridTables) -> None:
    """Let jobs be as others that no longer hold reserved nodes."""
    for place in range(world.clock[0].active):
        entry = world.jobs[world.active[place]]
        if entry.squats and entry.plain == entry.nodes:
            entry.squats = 0


@kernel
def give_up_waiting(world: HybridTables, demand: int) -> None:
    """End the reservation of an on-demand job that has not come in time."""
    for node in range(world.rules[0].nodes):
        if world.nodes[node].lease == demand:
            unreserve(world, node)
    world.jobs[demand].notice = PAST
    world.jobs[demand].missing = 0
    _forget_expected(world, demand)
    place = 0
    while place < world.clock[0].leases:
        if world.loans[place].borrower == demand:
            forget_loan(world, place)
        else:
            place += 1
    settle_squatters(world)


@kernel
def _send_squatters_away(world: HybridTables, demand: int) -> None:
    """Preempt the jobs that were backfilled on the nodes of an on-demand job; end leases on others' nodes."""
    count = 0
    for node in range(world.rules[0].nodes):
        entry = world.nodes[node]
        if entry.lease != demand or entry.job == NO_JOB:
            continue
        holder = world.jobs[entry.job]
        if holder.status != RUNNING:
            continue
        if not holder.squats:
            unreserve(world, node)
        elif not holder.picked:
            holder.picked = 1
            world.order[count] = entry.job
            count += 1
    for place in range(count):
        job = world.order[place]
        world.jobs[job].picked = 0
        preempt(world, job)


@kernel
def can_give(world: HybridTables, job: int) -> int:
    """Return how many nodes a job loses to an on-demand job if it is preempted for it; 0 if it cannot be."""
    entry = world.jobs[job]
    if entry.status != RUNNING or entry.kind == ON_DEMAND:
        return 0
    return entry.plain


@kernel
def _room_to_shrink(world: HybridTables) -> int:
    """Note how far every running malleable job can shrink; return by how many nodes all of them."""
    whole = 0
    for place in range(world.clock[0].active):
        entry = world.jobs[world.active[place]]
        entry.cap = 0
        entry.give = 0
        if entry.status == RUNNING and entry.kind == MALLEABLE:
            entry.cap = max(0, min(entry.nodes - entry.least, entry.plain))
            whole += entry.cap
    return whole


@kernel
def _share_out(world: HybridTables, need: int) -> None:
    """Let all give the same number of nodes, each at most its cap; what is left one by one, in order."""
    while need > 0:
        giving = 0
        step = need
        for place in range(world.clock[0].active):
            entry = world.jobs[world.active[place]]
            if entry.cap > entry.give:
                giving += 1
                step = min(step, entry.cap - entry.give)
        step = min(step, need // giving)
        for place in range(world.clock[0].active):
            entry = world.jobs[world.active[place]]
            if entry.cap > entry.give and need > 0:
                more = max(step, 1)
                entry.give += more
                need -= more


@kernel
def _shrink_for(world: HybridTables, demand: int, need: int) -> bool:
    """Shrink running malleable jobs evenly; return False, with nothing changed, if they have too little."""
    if _room_to_shrink(world) < need:
        return False
    _share_out(world, need)
    for place in range(world.clock[0].active):
        job = world.active[place]
        give = world.jobs[job].give
        if world.jobs[job].cap > 0 and give > 0:
            reserve_of(world, job, demand, give)
            lend(world, demand, job, give, 1)
            shrink(world, job, demand, give)
    return True


@kernel
def costs_less(world: HybridTables, a: int, b: int, a_units: int, b_units: int) -> bool:
    """Return whether ``a`` is preempted before ``b``, by overhead, size, then who started and came later."""
    one, other = world.jobs[a], world.jobs[b]
    if a_units != b_units:
        return a_units < b_units
    if one.nodes != other.nodes:
        return one.nodes < other.nodes
    if one.begun_us != other.begun_us:
        return one.begun_us > other.begun_us
    return a > b


@kernel
def _cheapest(world: HybridTables, picked: int) -> int:
    """Return the job that costs least to preempt of those that are picked, or are not; or none."""
    now_us = world.clock[0].now_us
    best = NO_JOB
    least = 0
    for place in range(world.clock[0].active):
        job = world.active[place]
        if can_give(world, job) == 0 or world.jobs[job].picked != picked:
            continue
        units = overhead_at(world.jobs[job], now_us)
        if best == NO_JOB or costs_less(world, job, best, units, least):
            best = job
            least = units
    return best


@kernel
def _pick_victims(world: HybridTables, need: int) -> None:
    """Pick jobs to preempt, by ascending overhead, until the need is met."""
    while need > 0:
        victim = _cheapest(world, 0)
        world.jobs[victim].picked = 1
        need -= world.jobs[victim].plain


@kernel
def take_from(world: HybridTables, demand: int, victim: int) -> None:
    """Preempt a job for an on-demand one, which gets of its nodes what it misses."""
    taken = reserve_of(world, victim, demand, min(world.jobs[demand].missing, world.jobs[victim].plain))
    if taken > 0:
        lend(world, demand, victim, taken, 0)
    preempt(world, victim)


@kernel
def start_demand(world: HybridTables, demand: int) -> None:
    """Start an on-demand job that has leases of what is not free."""
    entry, now_us = world.jobs[demand], world.clock[0].now_us
    hold(world, demand)
    if now_us == entry.submit_us:
        entry.instant = 1
    occupy_free(world, demand, entry.missing, 0)
    entry.missing = 0
    if entry.nodes == entry.asked:
        go(world, demand)
        return
    entry.status = GATHERING
    entry.share = world.rules[0].whole
    entry.setup_left = entry.setup
    entry.left = entry.work
    entry.ready_us = now_us + world.rules[0].warning_us
    entry.next_us = FAR_US


@kernel
def meet(world: HybridTables, demand: int) -> None:
    """Find nodes for an on-demand job that comes now, or let it wait in front."""
    clock, rules, entry = world.clock[0], world.rules[0], world.jobs[demand]
    clock.decisions += 1
    known = entry.notice == KNOWN
    entry.status = WAITING  # no job squats or collects for it any more
    if known:
        _send_squatters_away(world, demand)
        _forget_expected(world, demand)
    else:
        entry.missing = entry.asked
    entry.notice = PAST if entry.notice != NO_NOTICE else NO_NOTICE
    need = entry.missing - clock.free
    if need <= 0:
        start_demand(world, demand)
        return
    if rules.shrinks and _shrink_for(world, demand, need):
        start_demand(world, demand)
        return
    supply = 0
    for place in range(clock.active):
        supply += can_give(world, world.active[place])
    if supply < need:
        wait(world, demand)
    elif rules.asks:
        clock.asking = demand
    else:
        _pick_victims(world, need)
        evict_for(world, demand)


@kernel
def evict_for(world: HybridTables, demand: int) -> None:
    """Preempt the jobs that are picked for an on-demand job, the cheapest first, and start it."""
    reserve_free(world, demand)
    while True:
        victim = _cheapest(world, 1)
        if victim == NO_JOB:
            break
        world.jobs[victim].picked = 0
        take_from(world, demand, victim)
    start_demand(world, demand)
