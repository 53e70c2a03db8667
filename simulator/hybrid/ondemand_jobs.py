"""On-demand jobs: notices, arrivals, preemption for them, and plans for predicted arrivals (CUP).

What an on-demand job does to the others: from its notice to its start.

CUP: what running jobs will give back in time, and whom to preempt before an on-demand job comes.
"""

from __future__ import annotations

from simulator.hybrid.hybrid_lifecycles import (
    forget_loan,
    go,
    hold,
    lend,
    occupy_free,
    preempt,
    reserve_free,
    reserve_of,
    shrink,
    unreserve,
)
from simulator.hybrid.hybrid_state import (
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
    estimate_us,
    overhead_at,
    saved_by_us,
    wait,
)
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
def forget_expected(world: HybridTables, demand: int) -> None:
    """Take an on-demand job off the list of those that are to come."""
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
    forget_expected(world, demand)
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
        forget_expected(world, demand)
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


@kernel
def _ends_first(world: HybridTables, by_us: int) -> int:
    """Return the job with nodes to be marked that ends first, by its request, if it does by an instant."""
    best = NO_JOB
    best_us = by_us
    for place in range(world.clock[0].active):
        job = world.active[place]
        entry = world.jobs[job]
        if entry.status != RUNNING or entry.squats or entry.plain == 0:
            continue
        at_us = estimate_us(entry)
        if at_us < best_us or (at_us == best_us and best == NO_JOB):
            best = job
            best_us = at_us
    return best


@kernel
def _mark(world: HybridTables, demand: int) -> None:
    """Give an on-demand job leases of nodes that are released, by request, before it comes."""
    entry = world.jobs[demand]
    while entry.missing > 0:
        job = _ends_first(world, entry.predicted_us)
        if job == NO_JOB:
            return
        reserve_of(world, job, demand, entry.missing)


@kernel
def _when(world: HybridTables, demand: int, victim: int) -> int:
    """Return when a job would be preempted: after a checkpoint, or when the on-demand job is to come."""
    now_us, entry = world.clock[0].now_us, world.jobs[victim]
    predicted_us = world.jobs[demand].predicted_us
    if entry.kind == MALLEABLE:
        return max(now_us, predicted_us - world.rules[0].warning_us)
    at_us = saved_by_us(entry, now_us, predicted_us)
    return predicted_us if at_us == FAR_US else at_us


@kernel
def _plan_next(world: HybridTables, demand: int) -> int:
    """Plan to preempt the job that costs least of those without a plan; return how many nodes it gives."""
    best = NO_JOB
    best_us = 0
    least = 0
    for place in range(world.clock[0].active):
        job = world.active[place]
        entry = world.jobs[job]
        if can_give(world, job) == 0 or entry.squats or entry.picked:
            continue
        at_us = _when(world, demand, job)
        units = overhead_at(entry, at_us)
        if best == NO_JOB or costs_less(world, job, best, units, least):
            best = job
            best_us = at_us
            least = units
    if best == NO_JOB:
        return 0
    world.jobs[best].picked = 1
    plan = world.plans[world.clock[0].plans]
    world.clock[0].plans += 1
    plan.borrower = demand
    plan.victim = best
    plan.life = world.jobs[best].attempts
    plan.at_us = best_us
    plan.overhead = least
    return world.jobs[best].plain


@kernel
def plan_for(world: HybridTables, demand: int) -> None:
    """Mark what comes free in time, and plan preemptions for the rest, if that suffices."""
    _mark(world, demand)
    missing = world.jobs[demand].missing
    before = world.clock[0].plans
    while missing > 0 and world.clock[0].plans < len(world.plans):
        found = _plan_next(world, demand)
        if found == 0:
            world.clock[0].plans = before
            break
        missing -= found
    for place in range(world.clock[0].active):
        world.jobs[world.active[place]].picked = 0


@kernel
def next_plan(world: HybridTables) -> int:
    """Return the plan that is due first; the cheaper, then the earlier made, of several; or none."""
    best = NO_JOB
    for place in range(world.clock[0].plans):
        plan = world.plans[place]
        if best == NO_JOB:
            best = place
            continue
        first = world.plans[best]
        if plan.at_us < first.at_us or (plan.at_us == first.at_us and plan.overhead < first.overhead):
            best = place
    return best


@kernel
def _is_good(world: HybridTables, place: int) -> bool:
    """Return whether a plan can be carried out: the on-demand job is to come, and the victim still runs."""
    plan = world.plans[place]
    borrower, victim = world.jobs[plan.borrower], world.jobs[plan.victim]
    if borrower.status != COMING or borrower.notice != KNOWN:
        return False
    return victim.attempts == plan.life and can_give(world, plan.victim) > 0


@kernel
def _is_needed(world: HybridTables, place: int) -> bool:
    """Return whether the cheaper plans for the same job do not suffice."""
    plan = world.plans[place]
    missing = world.jobs[plan.borrower].missing
    for other in range(world.clock[0].plans):
        rival = world.plans[other]
        if other == place or rival.borrower != plan.borrower or not _is_good(world, other):
            continue
        if rival.overhead < plan.overhead or (rival.overhead == plan.overhead and other < place):
            missing -= world.jobs[rival.victim].plain
    return missing > 0


@kernel
def carry_out(world: HybridTables, place: int) -> None:
    """Carry out a plan, if it is still needed, and take it off the list."""
    plan = world.plans[place]
    wanted = _is_good(world, place) and _is_needed(world, place)
    borrower, victim = plan.borrower, plan.victim
    last = world.clock[0].plans - 1
    world.clock[0].plans = last
    for later in range(place, last):
        kept, moved = world.plans[later], world.plans[later + 1]
        kept.borrower = moved.borrower
        kept.victim = moved.victim
        kept.life = moved.life
        kept.at_us = moved.at_us
        kept.overhead = moved.overhead
    if wanted:
        take_from(world, borrower, victim)
