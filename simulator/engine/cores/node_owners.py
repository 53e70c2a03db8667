"""Which jobs may use a node: all, one for which it is reserved, or none while it is down or drained."""

from __future__ import annotations

from simulator.engine.kernels.compilation import kernel
from simulator.engine.state.engine_state import NEVER, EngineState
from simulator.engine.state.lifecycle_state import NO_JOB, Lives


@kernel
def _set_owner(state: EngineState, lives: Lives, index: int) -> None:
    """Bring the owner of a node up to date, and what is counted of nodes that take any job."""
    node, life = state.nodes[index], lives.nodes[index]
    owner = NO_JOB if life.down or life.drained else life.lease
    sign = int(owner == NEVER) - int(node.owner == NEVER)
    node.owner = owner
    if sign == 0:
        return
    state.clock[0].closed -= sign
    for free in range(node.free + 1):
        state.open_nodes[free] += sign


@kernel
def set_down(state: EngineState, lives: Lives, node: int, down: int) -> None:
    """Note that a node, on which no job is, is down, or no longer."""
    lives.nodes[node].down = down
    _set_owner(state, lives, node)


@kernel
def set_drained(state: EngineState, lives: Lives, node: int, drained: int) -> None:
    """Let no job start on a node, or let jobs start there again."""
    lives.nodes[node].drained = drained
    _set_owner(state, lives, node)


@kernel
def lease(state: EngineState, lives: Lives, node: int, job: int) -> None:
    """Reserve a node that is not reserved for ``job``."""
    lives.nodes[node].lease = job
    lives.jobs[job].leased += 1
    _set_owner(state, lives, node)


@kernel
def end_lease(state: EngineState, lives: Lives, node: int) -> None:
    """End the reservation of a node."""
    lives.jobs[lives.nodes[node].lease].leased -= 1
    lives.nodes[node].lease = NEVER
    _set_owner(state, lives, node)


@kernel
def end_leases(state: EngineState, lives: Lives, job: int) -> None:
    """End all reservations for ``job``."""
    node = 0
    while lives.jobs[job].leased > 0:
        if lives.nodes[node].lease == job:
            end_lease(state, lives, node)
        node += 1
