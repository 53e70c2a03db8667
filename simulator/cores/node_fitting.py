"""Which nodes a job may use, and whether it fits there.

Whether a job fits, whatever the placement: enough nodes with enough free slots and memory.

Which jobs may use a node: all, one for which it is reserved, or none while it is down or drained.
"""

from __future__ import annotations

from simulator.cores.node_classes import single_out
from simulator.jit.compilation import kernel
from simulator.state.engine_state import NEVER, EngineJobRecord, EngineState, NodeClassRecord
from simulator.state.lifecycle_state import NO_JOB, LifecycleTables


@kernel
def fits(job: EngineJobRecord, node: NodeClassRecord) -> bool:
    """Return whether a node of a class takes a job: it has slots and memory, and may."""
    return (
        node.free >= job.cores
        and node.free_kib >= job.memory_kib
        and (node.owner == NEVER or node.owner == job.index)
    )


@kernel
def fits_then(job: EngineJobRecord, node: NodeClassRecord) -> bool:
    """Return whether a node of a class takes a job at the earliest start of the queue's head."""
    return (
        node.then_free >= job.cores
        and node.then_kib >= job.memory_kib
        and (node.owner == NEVER or node.owner == job.index)
    )


@kernel
def change_then(asked: EngineJobRecord, node: NodeClassRecord, free: int, memory_kib: int) -> int:
    """Let nodes of a class have more, or less, at that start; return how many more suit ``asked`` then."""
    before = fits_then(asked, node)
    node.then_free += free
    node.then_kib += memory_kib
    return (int(fits_then(asked, node)) - int(before)) * node.nodes


@kernel
def show_then(asked: EngineJobRecord, node: NodeClassRecord) -> int:
    """Let nodes of a class be at that start what they are now; return how many suit ``asked``."""
    node.then_free = node.free
    node.then_kib = node.free_kib
    return int(fits_then(asked, node)) * node.nodes


@kernel
def job_fits(state: EngineState, job: int) -> bool:
    """Return whether enough nodes have slots and memory for ``job`` now."""
    asked = state.jobs[job]
    wanted = asked.nodes
    if state.clock[0].closed == 0:
        if state.open_nodes[asked.cores] < wanted:
            return False
        if asked.memory_kib == 0:
            return True
    for node_class in range(state.clock[0].classes):
        one = state.classes[node_class]
        if fits(asked, one):
            wanted -= one.nodes
            if wanted <= 0:
                return True
    return False


@kernel
def count_fitting(state: EngineState, job: int) -> int:
    """Return how many nodes have slots and memory for ``job`` now."""
    asked = state.jobs[job]
    if state.clock[0].closed == 0 and asked.memory_kib == 0:
        return state.open_nodes[asked.cores]
    count = 0
    for node_class in range(state.clock[0].classes):
        one = state.classes[node_class]
        count += int(fits(asked, one)) * one.nodes
    return count


@kernel
def count_idle(state: EngineState) -> int:
    """Return how many nodes are without a job and open to any."""
    if state.clock[0].closed == 0 and state.rules[0].slots == 1 and state.rules[0].nodes > 1:
        return state.ranking.size[0, 0]
    count = 0
    for node_class in range(state.clock[0].classes):
        one = state.classes[node_class]
        count += int(one.used == 0 and one.owner == NEVER) * one.nodes
    return count


@kernel
def _set_owner(state: EngineState, lifecycles: LifecycleTables, index: int) -> None:
    """Bring the owner of a node up to date, and what is counted of nodes that take any job."""
    node, life = state.classes[single_out(state, index)], lifecycles.nodes[index]
    owner = NO_JOB if life.down or life.drained else life.lease
    sign = int(owner == NEVER) - int(node.owner == NEVER)
    node.owner = owner
    if sign == 0:
        return
    state.clock[0].closed -= sign
    for free in range(node.free + 1):
        state.open_nodes[free] += sign


@kernel
def set_down(state: EngineState, lifecycles: LifecycleTables, node: int, down: int) -> None:
    """Note that a node, on which no job is, is down, or no longer."""
    lifecycles.nodes[node].down = down
    _set_owner(state, lifecycles, node)


@kernel
def set_drained(state: EngineState, lifecycles: LifecycleTables, node: int, drained: int) -> None:
    """Let no job start on a node, or let jobs start there again."""
    lifecycles.nodes[node].drained = drained
    _set_owner(state, lifecycles, node)


@kernel
def lease(state: EngineState, lifecycles: LifecycleTables, node: int, job: int) -> None:
    """Reserve a node that is not reserved for ``job``."""
    lifecycles.nodes[node].lease = job
    lifecycles.jobs[job].leased += 1
    _set_owner(state, lifecycles, node)


@kernel
def end_lease(state: EngineState, lifecycles: LifecycleTables, node: int) -> None:
    """End the reservation of a node."""
    lifecycles.jobs[lifecycles.nodes[node].lease].leased -= 1
    lifecycles.nodes[node].lease = NEVER
    _set_owner(state, lifecycles, node)


@kernel
def end_leases(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """End all reservations for ``job``."""
    node = 0
    while lifecycles.jobs[job].leased > 0:
        if lifecycles.nodes[node].lease == job:
            end_lease(state, lifecycles, node)
        node += 1
