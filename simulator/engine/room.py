"""Whether a job has room, whatever the placement: enough nodes with enough free slots and memory."""

from __future__ import annotations

from simulator.engine.compile import kernel
from simulator.engine.state import CORES, FREE, FREE_KIB, MEMORY_KIB, NODES, State


@kernel
def node_fits(state: State, job: int, node: int) -> bool:
    """Return whether ``node`` has slots and memory for one node's part of ``job``."""
    return bool(
        state.nodes[FREE, node] >= state.jobs[CORES, job]
        and state.nodes[FREE_KIB, node] >= state.jobs[MEMORY_KIB, job]
    )


@kernel
def job_fits(state: State, job: int) -> bool:
    """Return whether enough nodes have slots and memory for ``job`` now."""
    wanted = state.jobs[NODES, job]
    if state.roomy[state.jobs[CORES, job]] < wanted:
        return False
    if state.jobs[MEMORY_KIB, job] == 0:
        return True
    for node in range(state.nodes.shape[1]):
        if node_fits(state, job, node):
            wanted -= 1
            if wanted == 0:
                return True
    return False
