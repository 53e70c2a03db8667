"""Slots of cores: taking, giving back, and the multiplicity that follows.

A stack of core sets per node (``occupied``, ``busy``): level ``k`` holds the cores with more than ``k`` jobs.
Adding a job to a set of cores, or removing it, is one word operation a level.
"""

from __future__ import annotations

from simulator.engine.cores.row_cores import rank_by_cores
from simulator.engine.kernels.compilation import kernel
from simulator.engine.kernels.field_records import IntegerGrid
from simulator.engine.state.bit_sets import count_bits
from simulator.engine.state.engine_state import NEVER, EngineState
from simulator.engine.state.node_ranking import move_node
from simulator.engine.state.sharing_state import Rows


@kernel
def add_to_stack(stack: IntegerGrid, mask: IntegerGrid, node: int, part: int) -> None:
    """Count one job more on the cores of ``part``, on ``node``."""
    for word in range(stack.shape[2]):
        cores = mask[part, word]
        if cores == 0:
            continue
        for level in range(stack.shape[1] - 1, 0, -1):
            stack[node, level, word] |= stack[node, level - 1, word] & cores
        stack[node, 0, word] |= cores


@kernel
def remove_from_stack(stack: IntegerGrid, mask: IntegerGrid, node: int, part: int) -> None:
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
def part_multiplicity(stack: IntegerGrid, mask: IntegerGrid, node: int, part: int, least: int) -> int:
    """Return the most jobs on a core of ``part``, or ``least`` if that is more."""
    multiplicity = least
    for word in range(stack.shape[2]):
        cores = mask[part, word]
        while multiplicity < stack.shape[1] and stack[node, multiplicity, word] & cores:
            multiplicity += 1
    return multiplicity


@kernel
def cores_at_top(stack: IntegerGrid, mask: IntegerGrid, node: int, part: int, cores: int) -> int:
    """Return how many of the ``cores`` cores of ``part``, a job's, have no free slot."""
    top = stack.shape[1] - 1
    if top == 0:
        return cores
    count = 0
    for word in range(stack.shape[2]):
        count += count_bits(stack[node, top, word] & mask[part, word])
    return count


@kernel
def overlap(mask: IntegerGrid, a: int, b: int) -> bool:
    """Return whether the parts ``a`` and ``b``, on the same node, have a core in common."""
    common = 0
    for word in range(mask.shape[1]):
        common |= mask[a, word] & mask[b, word]
    return common != 0


@kernel
def _rank(state: EngineState, rows: Rows | None, node: int, before: int, freed: bool) -> None:
    """Rank a node of which other slots are occupied now; ``freed``: another number of its cores is free."""
    if rows is None:
        if state.rules[0].nodes > 1:  # an only node needs no ranking
            move_node(state.ranking, 0, node, before, state.nodes[node].used)
        return
    rank_by_cores(state, rows, node, freed)


@kernel
def list_parts(state: EngineState, job: int) -> None:
    """List the parts of ``job`` on their nodes."""
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        held = state.parts[part]
        here = state.nodes[held.node]
        held.job = job
        held.place = here.listed
        state.listed[held.node, here.listed] = part
        here.listed += 1


@kernel
def unlist_parts(state: EngineState, job: int) -> None:
    """Undo ``list_parts``."""
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        held = state.parts[part]
        here = state.nodes[held.node]
        here.listed -= 1
        moved = state.listed[held.node, here.listed]
        state.listed[held.node, held.place] = moved
        state.parts[moved].place = held.place


@kernel
def take_slots(state: EngineState, job: int) -> None:
    """Let ``job`` hold the cores that its parts name."""
    cores = state.jobs[job].cores
    memory_kib = state.jobs[job].memory_kib
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        held = state.parts[part]
        here = state.nodes[held.node]
        add_to_stack(state.occupied, state.mask, held.node, part)
        before = here.free
        after = before - cores_at_top(state.occupied, state.mask, held.node, part, cores)
        here.free = after
        if here.owner == NEVER:
            for free in range(after + 1, before + 1):
                state.open_nodes[free] -= 1
        here.used += cores
        _rank(state, state.rows, held.node, here.used - cores, before != after)
        here.free_kib -= memory_kib
    list_parts(state, job)


@kernel
def free_slots(state: EngineState, job: int) -> None:
    """Let ``job`` hold nothing any more; its parts still say what it held."""
    cores = state.jobs[job].cores
    memory_kib = state.jobs[job].memory_kib
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        held = state.parts[part]
        here = state.nodes[held.node]
        before = here.free
        after = before + cores_at_top(state.occupied, state.mask, held.node, part, cores)
        here.free = after
        if here.owner == NEVER:
            for free in range(before + 1, after + 1):
                state.open_nodes[free] += 1
        remove_from_stack(state.occupied, state.mask, held.node, part)
        here.used -= cores
        _rank(state, state.rows, held.node, here.used + cores, before != after)
        here.free_kib += memory_kib
    unlist_parts(state, job)
