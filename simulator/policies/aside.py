"""The nodes that the queue's head would take at its earliest start, for candidates that are to keep off them.

That is how NCS, the thesis's simulator, finds room for a candidate whose first choice of nodes would delay
the head.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.engine.bits import count_bits, flip
from simulator.engine.compile import kernel
from simulator.engine.state import CORES, FREE, FREE_KIB, MEMORY_KIB, NODES, USED, Ints, State


class Aside(NamedTuple):
    """The head's nodes as a set, and whether they are known in this pass (``known[0]``)."""

    nodes: Ints
    known: Ints


def no_aside(state: State) -> Aside:
    """Return an empty set that is not known."""
    return Aside(np.zeros_like(state.barred), np.zeros(1, dtype=np.int64))


@kernel
def count_used(room: Ints, stack: Ints) -> None:
    """Note in ``room[USED]`` how many slots of each node are occupied in ``stack``."""
    for node in range(stack.shape[0]):
        used = 0
        for level in range(stack.shape[1]):
            for word in range(stack.shape[2]):
                used += count_bits(stack[node, level, word])
        room[USED, node] = used


@kernel
def choose_for_head(state: State, aside: Aside, room: Ints, head: int) -> None:
    """Choose the nodes of ``head`` by the thesis's rule on a cluster with ``room``."""
    cores, memory_kib = state.jobs[CORES, head], state.jobs[MEMORY_KIB, head]
    for word in range(aside.nodes.shape[0]):
        aside.nodes[word] = 0
    wanted = state.jobs[NODES, head]
    load = 0
    most = state.listed.shape[1]
    while wanted > 0 and load <= most:
        following = most + 1
        for node in range(room.shape[1]):
            used = room[USED, node]
            if used < load or room[FREE, node] < cores or room[FREE_KIB, node] < memory_kib:
                continue
            if used > load:
                following = min(following, used)
            elif wanted > 0:
                flip(aside.nodes, node)
                wanted -= 1
        load = following
    aside.known[0] = 1


@kernel
def bar(state: State, aside: Aside) -> None:
    """Let placements keep off the head's nodes."""
    for word in range(state.barred.shape[0]):
        state.barred[word] = aside.nodes[word]


@kernel
def unbar(state: State) -> None:
    """Let placements use all nodes again."""
    for word in range(state.barred.shape[0]):
        state.barred[word] = 0
