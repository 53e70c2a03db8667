"""Slots of cores: taking, giving back, and the multiplicity that follows.

A stack of core sets per node (``occupied``, ``busy``): level ``k`` holds the cores with more than ``k`` jobs.
Adding a job to a set of cores, or removing it, is one word operation a level.
"""

from __future__ import annotations

from simulator.engine.bits import count_bits, flip
from simulator.engine.compile import kernel
from simulator.engine.state import (
    CORES,
    FREE,
    FREE_KIB,
    JOB,
    LISTED,
    MEMORY_KIB,
    NODE,
    PART_AT,
    PLACE,
    USED,
    Ints,
    State,
)


@kernel
def add_to_stack(stack: Ints, mask: Ints, node: int, part: int) -> None:
    """Count one job more on the cores of ``part``, on ``node``."""
    for word in range(stack.shape[2]):
        cores = mask[part, word]
        if cores == 0:
            continue
        for level in range(stack.shape[1] - 1, 0, -1):
            stack[node, level, word] |= stack[node, level - 1, word] & cores
        stack[node, 0, word] |= cores


@kernel
def remove_from_stack(stack: Ints, mask: Ints, node: int, part: int) -> None:
    """Count one job less on the cores of ``part``, on ``node``."""
    top = stack.shape[1] - 1
    for word in range(stack.shape[2]):
        cores = mask[part, word]
        if cores == 0:
            continue
        for level in range(top):
            above = stack[node, level + 1, word] & cores
            stack[node, level, word] = (stack[node, level, word] & ~cores) | above
        stack[node, top, word] &= ~cores


@kernel
def is_shared(stack: Ints, mask: Ints, node: int, part: int) -> bool:
    """Return whether some core of ``part`` has more than one job in ``stack``."""
    if stack.shape[1] < 2:
        return False
    shared = 0
    for word in range(stack.shape[2]):
        shared |= stack[node, 1, word] & mask[part, word]
    return shared != 0


@kernel
def part_multiplicity(stack: Ints, mask: Ints, node: int, part: int, least: int) -> int:
    """Return the most jobs on a core of ``part``, or ``least`` if that is more."""
    multiplicity = least
    for word in range(stack.shape[2]):
        cores = mask[part, word]
        while multiplicity < stack.shape[1] and stack[node, multiplicity, word] & cores:
            multiplicity += 1
    return multiplicity


@kernel
def cores_at_top(stack: Ints, mask: Ints, node: int, part: int, cores: int) -> int:
    """Return how many of the ``cores`` cores of ``part``, a job's, have no free slot."""
    top = stack.shape[1] - 1
    if top == 0:
        return cores
    count = 0
    for word in range(stack.shape[2]):
        count += count_bits(stack[node, top, word] & mask[part, word])
    return count


@kernel
def overlap(mask: Ints, a: int, b: int) -> bool:
    """Return whether the parts ``a`` and ``b``, on the same node, have a core in common."""
    common = 0
    for word in range(mask.shape[1]):
        common |= mask[a, word] & mask[b, word]
    return common != 0


@kernel
def _set_load(state: State, node: int, load: int) -> None:
    """Note that ``node`` has ``load`` occupied slots from now on; an only node needs no ranking."""
    before = state.nodes[USED, node]
    state.nodes[USED, node] = load
    if state.nodes.shape[1] == 1:
        return
    flip(state.by_load[before], node)
    flip(state.by_load[load], node)
    state.load_size[before] -= 1
    if state.load_size[before] == 0:
        flip(state.loads, before)
    state.load_size[load] += 1
    if state.load_size[load] == 1:
        flip(state.loads, load)


@kernel
def take_slots(state: State, job: int) -> None:
    """Let ``job`` hold the cores that its parts name."""
    nodes, parts = state.nodes, state.parts
    cores = state.jobs[CORES, job]
    memory_kib = state.jobs[MEMORY_KIB, job]
    for part in range(state.jobs[PART_AT, job], state.jobs[PART_AT, job + 1]):
        node = parts[NODE, part]
        add_to_stack(state.occupied, state.mask, node, part)
        before = nodes[FREE, node]
        after = before - cores_at_top(state.occupied, state.mask, node, part, cores)
        nodes[FREE, node] = after
        for free in range(after + 1, before + 1):
            state.roomy[free] -= 1
        _set_load(state, node, nodes[USED, node] + cores)
        nodes[FREE_KIB, node] -= memory_kib
        place = nodes[LISTED, node]
        parts[JOB, part] = job
        parts[PLACE, part] = place
        state.listed[node, place] = part
        nodes[LISTED, node] = place + 1


@kernel
def free_slots(state: State, job: int) -> None:
    """Let ``job`` hold nothing any more; its parts still say what it held."""
    nodes, parts = state.nodes, state.parts
    cores = state.jobs[CORES, job]
    memory_kib = state.jobs[MEMORY_KIB, job]
    for part in range(state.jobs[PART_AT, job], state.jobs[PART_AT, job + 1]):
        node = parts[NODE, part]
        before = nodes[FREE, node]
        after = before + cores_at_top(state.occupied, state.mask, node, part, cores)
        nodes[FREE, node] = after
        for free in range(before + 1, after + 1):
            state.roomy[free] += 1
        remove_from_stack(state.occupied, state.mask, node, part)
        _set_load(state, node, nodes[USED, node] - cores)
        nodes[FREE_KIB, node] += memory_kib
        last = nodes[LISTED, node] - 1
        nodes[LISTED, node] = last
        moved = state.listed[node, last]
        state.listed[node, parts[PLACE, part]] = moved
        parts[PLACE, moved] = parts[PLACE, part]
