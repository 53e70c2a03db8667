"""The nodes that the queue's head would take at its earliest start, for candidates that are to keep off them.

That is how NCS, the thesis's simulator, finds nodes for a candidate whose first choice of nodes would delay
the head.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.cores.node_fitting import fits
from simulator.jit.compilation import kernel
from simulator.jit.field_records import IntegerGrid, IntegerRow, RecordTable
from simulator.state.engine_state import EngineNodeRecord, EngineState
from simulator.state.node_sets import count_bits, flip


class HeadNodes(NamedTuple):
    """The head's nodes as a set, and whether they are known in this pass (``known[0]``)."""

    nodes: IntegerRow
    known: IntegerRow


@kernel
def count_used(nodes_then: RecordTable[EngineNodeRecord], stack: IntegerGrid) -> None:
    """Note in ``nodes_then`` how many slots of each node are occupied in ``stack``."""
    for node in range(stack.shape[0]):
        used = 0
        for level in range(stack.shape[1]):
            for word in range(stack.shape[2]):
                used += count_bits(stack[node, level, word])
        nodes_then[node].used = used


@kernel
def choose_for_head(
    state: EngineState, aside: HeadNodes, nodes_then: RecordTable[EngineNodeRecord], head: int
) -> None:
    """Choose the nodes of ``head`` by the thesis's rule on a cluster with ``nodes_then``."""
    asked = state.jobs[head]
    for word in range(len(aside.nodes)):
        aside.nodes[word] = 0
    wanted = asked.nodes
    load = 0
    most = state.listed.shape[1]
    while wanted > 0 and load <= most:
        following = most + 1
        for node in range(state.rules[0].nodes):
            used = nodes_then[node].used
            if used < load or not fits(asked, nodes_then[node]):
                continue
            if used > load:
                following = min(following, used)
            elif wanted > 0:
                flip(aside.nodes, node)
                wanted -= 1
        load = following
    aside.known[0] = 1


@kernel
def bar(state: EngineState, aside: HeadNodes) -> None:
    """Let placements keep off the head's nodes."""
    for word in range(len(state.barred)):
        state.barred[word] = aside.nodes[word]


@kernel
def unbar(state: EngineState) -> None:
    """Let placements use all nodes again."""
    for word in range(len(state.barred)):
        state.barred[word] = 0
