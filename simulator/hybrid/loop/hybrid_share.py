"""hybrid-share: an on-demand job starts at once, on nodes that it shares with jobs that run on.

Each of the two on a node gets its share of the time slices of its gang, so both go on, the slower the more
nodes they share with anybody: a job is as fast as its slowest node. A node has one guest at most.
"""

from __future__ import annotations

from simulator.hybrid.loop.hybrid_lifecycles import go, hold
from simulator.hybrid.loop.hybrid_progress import foresee, settle
from simulator.hybrid.loop.hybrid_state import NO_JOB, ON_DEMAND, RUNNING, HybridTables
from simulator.hybrid.loop.node_leases import occupy_free
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
