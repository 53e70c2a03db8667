"""CUP: what running jobs will give back in time, and whom to preempt before an on-demand job comes."""

from __future__ import annotations

from simulator.hybrid.loop.hybrid_progress import estimate_us, overhead_at, saved_by_us
from simulator.hybrid.loop.hybrid_state import (
    COMING,
    FAR_US,
    KNOWN,
    MALLEABLE,
    NO_JOB,
    RUNNING,
    HybridTables,
)
from simulator.hybrid.loop.node_leases import reserve_of
from simulator.hybrid.loop.ondemand_jobs import can_give, costs_less, take_from
from simulator.jit.compilation import kernel


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
    plan.life = world.jobs[best].lives
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
    return victim.lives == plan.life and can_give(world, plan.victim) > 0


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
