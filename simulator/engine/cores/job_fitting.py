"""Whether a job fits, whatever the placement: enough nodes with enough free slots and memory."""

from __future__ import annotations

from simulator.engine.kernels.compilation import kernel
from simulator.engine.state.engine_state import NEVER, EngineJobRecord, EngineNodeRecord, EngineState


@kernel
def fits(job: EngineJobRecord, node: EngineNodeRecord) -> bool:
    """Return whether a node, as it is or as it will be, takes a job: it has slots and memory, and may."""
    return (
        node.free >= job.cores
        and node.free_kib >= job.memory_kib
        and (node.owner == NEVER or node.owner == job.index)
    )


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
    for node in range(state.rules[0].nodes):
        if fits(asked, state.nodes[node]):
            wanted -= 1
            if wanted == 0:
                return True
    return False


@kernel
def count_fitting(state: EngineState, job: int) -> int:
    """Return how many nodes have slots and memory for ``job`` now."""
    asked = state.jobs[job]
    if state.clock[0].closed == 0 and asked.memory_kib == 0:
        return state.open_nodes[asked.cores]
    count = 0
    for node in range(state.rules[0].nodes):
        count += int(fits(asked, state.nodes[node]))
    return count


@kernel
def count_idle(state: EngineState) -> int:
    """Return how many nodes are without a job and open to any."""
    if state.clock[0].closed == 0 and state.rules[0].slots == 1 and state.rules[0].nodes > 1:
        return state.ranking.size[0, 0]
    count = 0
    for index in range(state.rules[0].nodes):
        node = state.nodes[index]
        count += int(node.used == 0 and node.owner == NEVER)
    return count
