"""Starts, ends and preemptions of jobs of a hybrid pool, and leases of its nodes.

Jobs start, leave, end, and change size.

Nodes change hands: jobs, leases, and the record of what was held.
"""

from __future__ import annotations

from simulator.hybrid.hybrid_state import (
    COLLECT,
    COMING,
    FAR_US,
    GATHERING,
    KNOWN,
    LEAVING,
    MALLEABLE,
    NO_JOB,
    OVER,
    PLAN,
    RUNNING,
    WAITING,
    HybridTables,
    begin_lifecycle,
    foresee,
    keep,
    lose,
    place_of,
    settle,
    unqueue,
    wait,
)
from simulator.jit.compilation import kernel
from simulator.state.lifecycle_state import BY_CHECKPOINT, BY_PREEMPTION, BY_RESIZE
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
def _begin_resized(world: HybridTables, job: int) -> None:
    """Begin another stretch of a job that changes its size, unless its stretch has just begun."""
    entry = world.jobs[job]
    if entry.stretch_us < world.clock[0].now_us:
        close_stretch(world, job, 0)
        entry.why = BY_RESIZE


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
        entry.stretch_us = now_us
    _begin_resized(world, job)
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


@kernel
def hold(world: HybridTables, job: int) -> None:
    """Note that a job is about to hold nodes, for the first time or again."""
    entry, now_us = world.jobs[job], world.clock[0].now_us
    if entry.start_us == NO_JOB:
        entry.start_us = now_us
    entry.attempts += 1
    entry.begun_us = now_us
    entry.since_us = now_us
    entry.stretch_us = now_us
    entry.stretch_setup_us = 0
    enter(world, job)


@kernel
def go(world: HybridTables, job: int) -> None:
    """Let a job that has all of its nodes begin, or go on."""
    entry = world.jobs[job]
    if entry.ready_us == NO_JOB or entry.status == GATHERING:
        entry.ready_us = world.clock[0].now_us
    begin_lifecycle(world, entry)


@kernel
def _wait_again(world: HybridTables, job: int, why: int) -> None:
    drop(world, job)
    entry = world.jobs[job]
    entry.why = why
    entry.next_us = FAR_US
    entry.squats = 0
    wait(world, job)


@kernel
def leave(world: HybridTables, job: int) -> None:
    """Take a job, whose warning is over, off its nodes."""
    settle(world, world.jobs[job])
    close_stretch(world, job, 0)
    _leave_nodes(world, job)
    _wait_again(world, job, BY_CHECKPOINT)


@kernel
def _leave_nodes(world: HybridTables, job: int) -> None:
    """Take a job off its nodes, and let those go on that have waited for the last of them."""
    vacate_all(world, job)
    for place in range(world.clock[0].active):
        other = world.active[place]
        entry = world.jobs[other]
        if entry.status == GATHERING and entry.nodes == entry.asked:
            close_stretch(world, other, 0)
            go(world, other)


@kernel
def preempt(world: HybridTables, job: int) -> None:
    """Take a running job off its nodes: a malleable one after a warning, a rigid one at once."""
    entry = world.jobs[job]
    settle(world, entry)
    entry.preemptions += 1
    if entry.kind == MALLEABLE:
        keep(world, entry)
        if world.rules[0].warning_us > 0:
            entry.status = LEAVING
            entry.next_us = world.clock[0].now_us + world.rules[0].warning_us
        else:
            leave(world, job)
        return
    lost_us = lose(world, entry)
    close_stretch(world, job, lost_us)
    _leave_nodes(world, job)
    _wait_again(world, job, BY_PREEMPTION)


@kernel
def shrink(world: HybridTables, job: int, demand: int, count: int) -> None:
    """Take so many nodes, whose leases an on-demand job has, from a running malleable job."""
    entry = world.jobs[job]
    settle(world, entry)
    _begin_resized(world, job)
    entry.shrinks += 1
    for place in range(world.rules[0].nodes):
        node = world.rules[0].nodes - 1 - place
        if count == 0:
            break
        if world.nodes[node].job == job and world.nodes[node].lease == demand:
            vacate(world, node)
            count -= 1
    foresee(world, entry)


@kernel
def _grow(world: HybridTables, giver: int, taker: int, count: int) -> None:
    """Give nodes of a job that ends to a running malleable one."""
    entry = world.jobs[taker]
    settle(world, entry)
    _begin_resized(world, taker)
    hand_over(world, giver, taker, count)
    foresee(world, entry)


@kernel
def _resume(world: HybridTables, giver: int, taker: int, count: int) -> None:
    """Let a waiting job go on with nodes of a job that ends."""
    unqueue(world, place_of(world, taker))
    hold(world, taker)
    hand_over(world, giver, taker, count)
    go(world, taker)


@kernel
def _give_back(world: HybridTables, giver: int, place: int) -> None:
    """Return the nodes of a loan, if its lender can use them."""
    loan = world.loans[place]
    lender = world.jobs[loan.lender]
    most = min(loan.nodes, world.jobs[giver].plain)
    if lender.attempts != loan.life:
        return
    if loan.shrank:
        count = min(most, lender.asked - lender.nodes)
        if lender.status == RUNNING and count > 0:
            _grow(world, giver, loan.lender, count)
    elif lender.status == WAITING and most >= lender.least:
        _resume(world, giver, loan.lender, min(most, lender.asked))


@kernel
def _next_lender(world: HybridTables, borrower: int) -> int:
    """Return the loan to return next: first of shrunk jobs, then of preempted ones, by arrival; or none."""
    best = NO_JOB
    for place in range(world.clock[0].leases):
        loan = world.loans[place]
        if loan.borrower != borrower:
            continue
        if (
            best == NO_JOB
            or loan.shrank > world.loans[best].shrank
            or (
                loan.shrank == world.loans[best].shrank
                and world.jobs[loan.lender].order < world.jobs[world.loans[best].lender].order
            )
        ):
            best = place
    return best


@kernel
def forget_loan(world: HybridTables, place: int) -> None:
    """Take a loan off the list."""
    world.clock[0].leases -= 1
    last, loan = world.loans[world.clock[0].leases], world.loans[place]
    loan.borrower = last.borrower
    loan.lender = last.lender
    loan.nodes = last.nodes
    loan.life = last.life
    loan.shrank = last.shrank


@kernel
def lend(world: HybridTables, borrower: int, lender: int, count: int, shrank: int) -> None:
    """Write down what a job gives to an on-demand one."""
    loan = world.loans[world.clock[0].leases]
    world.clock[0].leases += 1
    loan.borrower = borrower
    loan.lender = lender
    loan.nodes = count
    loan.life = world.jobs[lender].attempts
    loan.shrank = shrank


@kernel
def end(world: HybridTables, job: int) -> None:
    """End a job that has done its work, and return what it has borrowed."""
    entry = world.jobs[job]
    settle(world, entry)
    keep(world, entry)
    close_stretch(world, job, 0)
    while True:
        place = _next_lender(world, job)
        if place == NO_JOB:
            break
        _give_back(world, job, place)
        forget_loan(world, place)
    drop(world, job)
    if entry.shared > 0:
        part(world, job)
    vacate_all(world, job)
    entry.status = OVER
    entry.next_us = FAR_US
    entry.end_us = world.clock[0].now_us
    world.clock[0].unfinished -= 1


@kernel
def part(world: HybridTables, job: int) -> None:
    """Let a job that ends leave its shared nodes to those that it shares them with."""
    if world.jobs[job].shared == 0:
        return
    for node in range(world.rules[0].nodes):
        entry = world.nodes[node]
        if entry.guest == NO_JOB:
            continue
        other = NO_JOB
        if entry.guest == job:
            other = entry.job
            world.jobs[job].nodes -= 1
        elif entry.job == job:
            other = entry.guest
            world.jobs[job].nodes -= 1
            world.jobs[job].plain -= 1
            world.jobs[other].plain += 1
        if other == NO_JOB:
            continue
        settle(world, world.jobs[other])
        if world.nodes[node].job == job:
            entry.job = other
        entry.guest = NO_JOB
        world.jobs[other].shared -= 1
        if world.jobs[other].shared == 0:
            foresee(world, world.jobs[other])
    world.jobs[job].shared = 0
