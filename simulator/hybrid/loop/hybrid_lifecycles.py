"""Jobs start, leave, end, and change size."""

from __future__ import annotations

from simulator.hybrid.loop.hybrid_progress import begin_life, foresee, keep, lose, settle
from simulator.hybrid.loop.hybrid_queue import place_of, unqueue, wait
from simulator.hybrid.loop.hybrid_state import (
    FAR_US,
    GATHERING,
    LEAVING,
    MALLEABLE,
    NO_JOB,
    OVER,
    RUNNING,
    WAITING,
    HybridTables,
)
from simulator.hybrid.loop.node_leases import close_stretch, drop, enter, hand_over, vacate, vacate_all
from simulator.jit.compilation import kernel
from simulator.state.lifecycle_state import BY_CHECKPOINT, BY_PREEMPTION, BY_RESIZE


@kernel
def hold(world: HybridTables, job: int) -> None:
    """Note that a job is about to hold nodes, for the first time or again."""
    entry, now_us = world.jobs[job], world.clock[0].now_us
    if entry.start_us == NO_JOB:
        entry.start_us = now_us
    entry.lives += 1
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
    begin_life(world, entry)


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
            return
        close_stretch(world, job, 0)
        _leave_nodes(world, job)
        _wait_again(world, job, BY_CHECKPOINT)
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
    close_stretch(world, job, 0)
    entry.why = BY_RESIZE
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
    close_stretch(world, taker, 0)
    entry.why = BY_RESIZE
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
    if lender.lives != loan.life:
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
    loan.life = world.jobs[lender].lives
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
