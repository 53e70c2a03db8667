"""Whether a job has room, whatever the placement: enough nodes with enough free slots and memory."""

from __future__ import annotations

from simulator.engine.compile import kernel
from simulator.engine.state import JobRecord, NodeRecord, State


@kernel
def fits(job: JobRecord, node: NodeRecord) -> bool:
    """Return whether a node, as it is or as it will be, has slots and memory for one node's part of a job."""
    return node.free >= job.cores and node.free_kib >= job.memory_kib


@kernel
def job_fits(state: State, job: int) -> bool:
    """Return whether enough nodes have slots and memory for ``job`` now."""
    asked = state.jobs[job]
    wanted = asked.nodes
    if state.roomy[asked.cores] < wanted:
        return False
    if asked.memory_kib == 0:
        return True
    for node in range(state.rules[0].nodes):
        if fits(asked, state.nodes[node]):
            wanted -= 1
            if wanted == 0:
                return True
    return False
