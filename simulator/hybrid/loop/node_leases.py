"""Nodes change hands: jobs, leases, and the record of what was held."""

from __future__ import annotations

from simulator.hybrid.loop.hybrid_progress import settle
from simulator.hybrid.loop.hybrid_state import COLLECT, COMING, GATHERING, KNOWN, NO_JOB, PLAN, HybridTables
from simulator.jit.compilation import kernel
from simulator.state.lifecycle_state import BY_RESIZE
from simulator.state.node_sets import WORD_BITS


@kernel
def close_stretch(world: HybridTables, job: int, lost_us: int) -> None:
    """Write down what a job has held since its last change; its nodes are still its own."""
    entry, clock = world.jobs[job], world.clock[0]
    if clock.now_us <= entry.stretch_us:
        return
    if world.rules[0].records and entry.nodes > 0:
        row = clock.logged
        clock.logged += 1
        stretch = world.log[row]
        stretch.job = job
        stretch.from_us = entry.stretch_us
        stretch.to_us = clock.now_us
        stretch.why = entry.why
        stretch.setup_us = entry.stretch_setup_us
        stretch.lost_us = lost_us
        for word in range(world.mask.shape[1]):
            world.mask[row, word] = 0
        for node in range(world.rules[0].nodes):
            if world.nodes[node].job == job or world.nodes[node].guest == job:
                word = node // WORD_BITS
                world.mask[row, word] |= 1 << (node - word * WORD_BITS)
    entry.stretch_us = clock.now_us
    entry.stretch_setup_us = 0


@kernel
def enter(world: HybridTables, job: int) -> None:
    """Put a job on the list of those that hold nodes."""
    place = world.clock[0].active
    while place > 0 and world.active[place - 1] > job:
        world.active[place] = world.active[place - 1]
        place -= 1
    world.active[place] = job
    world.clock[0].active += 1


@kernel
def drop(world: HybridTables, job: int) -> None:
    """Take a job off that list."""
    place = 0
    while world.active[place] != job:
        place += 1
    world.clock[0].active -= 1
    for later in range(place, world.clock[0].active):
        world.active[later] = world.active[later + 1]


@kernel
def occupy(world: HybridTables, node: int, job: int) -> None:
    """Let a job have a node that has none; the lease stays, unless it is the job's own."""
    entry, taker = world.nodes[node], world.jobs[job]
    if entry.lease == NO_JOB:
        world.clock[0].free -= 1
    else:
        world.jobs[entry.lease].got -= 1
        if entry.lease == job:
            entry.lease = NO_JOB
    if entry.lease == NO_JOB:
        taker.plain += 1
    entry.job = job
    taker.nodes += 1


@kernel
def occupy_free(world: HybridTables, job: int, plain: int, leased: int) -> None:
    """Let a job have free nodes: so many without a lease, so many with another's, and all with its own."""
    for node in range(world.rules[0].nodes):
        entry = world.nodes[node]
        if entry.job != NO_JOB:
            continue
        if entry.lease == NO_JOB:
            if plain > 0:
                plain -= 1
                occupy(world, node, job)
        elif entry.lease == job:
            occupy(world, node, job)
        elif leased > 0 and world.jobs[entry.lease].status == COMING:
            leased -= 1
            occupy(world, node, job)


@kernel
def reserve(world: HybridTables, node: int, demand: int) -> None:
    """Give an on-demand job the lease of a node that has none."""
    entry, borrower = world.nodes[node], world.jobs[demand]
    entry.lease = demand
    borrower.missing -= 1
    if entry.job == NO_JOB:
        world.clock[0].free -= 1
        borrower.got += 1
    else:
        world.jobs[entry.job].plain -= 1


@kernel
def unreserve(world: HybridTables, node: int) -> None:
    """End the lease of a node."""
    entry = world.nodes[node]
    borrower = world.jobs[entry.lease]
    entry.lease = NO_JOB
    borrower.missing += 1
    if entry.job == NO_JOB:
        world.clock[0].free += 1
        borrower.got -= 1
    else:
        world.jobs[entry.job].plain += 1


@kernel
def reserve_free(world: HybridTables, demand: int) -> None:
    """Give an on-demand job leases of free nodes, as many as it misses."""
    for node in range(world.rules[0].nodes):
        if world.jobs[demand].missing <= 0 or world.clock[0].free == 0:
            return
        if world.nodes[node].job == NO_JOB and world.nodes[node].lease == NO_JOB:
            reserve(world, node, demand)


@kernel
def reserve_of(world: HybridTables, job: int, demand: int, most: int) -> int:
    """Give an on-demand job leases of at most so many nodes of a job, the highest; return how many."""
    given = 0
    for place in range(world.rules[0].nodes):
        node = world.rules[0].nodes - 1 - place
        if given == most:
            break
        if world.nodes[node].job == job and world.nodes[node].lease == NO_JOB:
            reserve(world, node, demand)
            given += 1
    return given


@kernel
def _collector(world: HybridTables) -> int:
    """Return the on-demand job that the next node without a lease goes to, or none."""
    strategy = world.rules[0].strategy
    if strategy in (COLLECT, PLAN):
        for place in range(world.clock[0].expected):
            job = world.expected[place]
            entry = world.jobs[job]
            if entry.status == COMING and entry.notice == KNOWN and entry.missing > 0:
                return job
    return NO_JOB


@kernel
def _gather(world: HybridTables, node: int, job: int) -> None:
    """Let an on-demand job have a node that it has waited for since it came."""
    entry, now_us = world.jobs[job], world.clock[0].now_us
    settle(world, entry)
    if entry.nodes == 0:
        entry.start_us = now_us
    elif entry.stretch_us < now_us:
        close_stretch(world, job, 0)
        entry.why = BY_RESIZE
    entry.stretch_us = now_us
    occupy(world, node, job)


@kernel
def vacate(world: HybridTables, node: int) -> None:
    """Take the job off a node, which goes to whom it is leased, to a collector, or to the pool."""
    entry = world.nodes[node]
    holder = world.jobs[entry.job]
    holder.nodes -= 1
    entry.job = NO_JOB
    if entry.lease != NO_JOB:
        borrower = entry.lease
        world.jobs[borrower].got += 1
        if world.jobs[borrower].status == GATHERING:
            _gather(world, node, borrower)
        return
    holder.plain -= 1
    world.clock[0].free += 1
    collector = _collector(world)
    if collector != NO_JOB:
        reserve(world, node, collector)


@kernel
def vacate_all(world: HybridTables, job: int) -> None:
    """Take a job off all of its nodes."""
    for node in range(world.rules[0].nodes):
        if world.nodes[node].job == job:
            vacate(world, node)


@kernel
def hand_over(world: HybridTables, giver: int, taker: int, count: int) -> None:
    """Let a job have so many nodes of another one."""
    for node in range(world.rules[0].nodes):
        if count == 0:
            return
        if world.nodes[node].job == giver and world.nodes[node].lease == NO_JOB:
            world.nodes[node].job = taker
            world.jobs[giver].nodes -= 1
            world.jobs[giver].plain -= 1
            world.jobs[taker].nodes += 1
            world.jobs[taker].plain += 1
            count -= 1
