"""A node that two jobs share has one again when one of them ends."""

from __future__ import annotations

from simulator.engine.kernels.compilation import kernel
from simulator.hybrid.loop.hybrid_progress import foresee, settle
from simulator.hybrid.loop.hybrid_state import NOBODY, World


@kernel
def part(world: World, job: int) -> None:
    """Let a job that ends leave its shared nodes to those that it shares them with."""
    if world.jobs[job].shared == 0:
        return
    for node in range(world.rules[0].nodes):
        entry = world.nodes[node]
        if entry.guest == NOBODY:
            continue
        other = NOBODY
        if entry.guest == job:
            other = entry.job
            world.jobs[job].nodes -= 1
        elif entry.job == job:
            other = entry.guest
            world.jobs[job].nodes -= 1
            world.jobs[job].plain -= 1
            world.jobs[other].plain += 1
        if other == NOBODY:
            continue
        settle(world, world.jobs[other])
        if world.nodes[node].job == job:
            entry.job = other
        entry.guest = NOBODY
        world.jobs[other].shared -= 1
        if world.jobs[other].shared == 0:
            foresee(world, world.jobs[other])
    world.jobs[job].shared = 0
