"""The event loop.

At one instant: jobs that end, or leave after a warning, by number; plans that are due; reservations that are
over; notices; arrivals. A pass follows each.
"""

from __future__ import annotations

from simulator.hybrid.loop.cup_plans import carry_out, next_plan, plan_for
from simulator.hybrid.loop.hybrid_backfill import schedule
from simulator.hybrid.loop.hybrid_lifecycles import end, leave
from simulator.hybrid.loop.hybrid_queue import wait
from simulator.hybrid.loop.hybrid_share import start_shared
from simulator.hybrid.loop.hybrid_state import (
    BASELINE,
    COMING,
    FAR_US,
    KNOWN,
    LEAVING,
    NO_JOB,
    ON_DEMAND,
    PLAN,
    SHARE,
    HybridTables,
)
from simulator.hybrid.loop.ondemand_jobs import evict_for, expect, give_up_waiting, meet
from simulator.jit.compilation import kernel

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
def _first_over(world: HybridTables) -> int:
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
    late = _first_over(world)
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
