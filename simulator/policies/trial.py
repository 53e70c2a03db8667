"""Trying a candidate for backfilling on shared cores: the projection of its group, against the base.

See ``ahead`` for the rule and for why the group is enough.
"""

from __future__ import annotations

from simulator.engine.compile import kernel
from simulator.engine.occupancy import is_shared, overlap
from simulator.engine.state import (
    AGENDA,
    BUSY,
    BY_PAIR,
    FREE,
    FREE_KIB,
    HEAP,
    JOB,
    KIND,
    LAST,
    LEFT,
    LISTED,
    MEMORY_KIB,
    NEXT_US,
    NODE,
    NODES,
    NOW,
    PART_AT,
    REQUEST_US,
    SCALE,
    SINCE_US,
    State,
)
from simulator.policies.ahead import (
    FITTING,
    GROUP,
    MEMBER,
    ROOM,
    ROOMS,
    SHADOW_US,
    Ahead,
    copy_node,
    end_next,
    free_cores,
    launch,
    load,
    suits,
)


@kernel
def _enter_group(state: State, ahead: Ahead, part: int, rooms: int) -> int:
    """Add the cores of ``part`` to those of the group; return how many nodes it is on."""
    node = state.parts[NODE, part]
    fresh = True
    for word in range(state.mask.shape[1]):
        fresh = fresh and ahead.group_cores[node, word] == 0
        ahead.group_cores[node, word] |= state.mask[part, word]
    if fresh:
        ahead.lists[ROOM, rooms] = node
        rooms += 1
    return rooms


@kernel
def _gather_group(state: State, ahead: Ahead, job: int) -> None:
    """List ``job`` and the jobs whose presence at the head's start it may change."""
    pairwise = state.rules[KIND] == BY_PAIR
    ahead.trial[BUSY, job] = 1
    ahead.lists[MEMBER, 0] = job
    size = 1
    rooms = 0
    reached = 0
    while reached < size:
        member = ahead.lists[MEMBER, reached]
        reached += 1
        for part in range(state.jobs[PART_AT, member], state.jobs[PART_AT, member + 1]):
            rooms = _enter_group(state, ahead, part, rooms)
            node = state.parts[NODE, part]
            if not is_shared(state.occupied, state.mask, node, part):
                continue
            for place in range(state.nodes[LISTED, node]):
                other = state.listed[node, place]
                guest = state.parts[JOB, other]
                if ahead.trial[BUSY, guest] == 0 and (
                    (ahead.base[BUSY, guest] == 0 or pairwise) and overlap(state.mask, part, other)
                ):
                    ahead.trial[BUSY, guest] = 1
                    ahead.lists[MEMBER, size] = guest
                    size += 1
    ahead.counters[GROUP] = size
    ahead.counters[ROOMS] = rooms


@kernel
def _forget_group(ahead: Ahead) -> None:
    for place in range(ahead.counters[GROUP]):
        ahead.trial[BUSY, ahead.lists[MEMBER, place]] = 0
    for place in range(ahead.counters[ROOMS]):
        for word in range(ahead.group_cores.shape[1]):
            ahead.group_cores[ahead.lists[ROOM, place], word] = 0


@kernel
def _project_group(state: State, ahead: Ahead, job: int) -> None:
    """Project the group of ``job`` up to the head's start."""
    trial, clock = ahead.trial, ahead.trial_clock
    now = state.clock[NOW]
    for place in range(ahead.counters[ROOMS]):
        copy_node(ahead.trial_stack, state.occupied, ahead.lists[ROOM, place])
    clock[AGENDA] = 0
    clock[NOW] = now
    for place in range(1, ahead.counters[GROUP]):
        load(state, trial, ahead.lists[MEMBER, place])
    trial[LEFT, job] = state.jobs[REQUEST_US, job] * state.rules[SCALE]
    trial[SINCE_US, job] = now
    trial[LAST, job] = 1
    for place in range(ahead.counters[GROUP]):
        launch(state, trial, clock, ahead.trial_stack, ahead.lists[MEMBER, place])
    while clock[AGENDA] > 0 and trial[NEXT_US, trial[HEAP, 0]] <= ahead.counters[SHADOW_US]:
        end_next(state, trial, clock, ahead.trial_stack)


@kernel
def _merge(state: State, ahead: Ahead, node: int) -> None:
    """Put the group's cores as the trial left them into the base of ``node``, and keep the old base."""
    for level in range(ahead.base_stack.shape[1]):
        for word in range(ahead.base_stack.shape[2]):
            own = ahead.group_cores[node, word]
            old = ahead.base_stack[node, level, word]
            ahead.base_stack[node, level, word] = (old & ~own) | (ahead.trial_stack[node, level, word] & own)
            ahead.trial_stack[node, level, word] = old
    ahead.room[FREE, node] = free_cores(state, ahead.base_stack, node)


@kernel
def _charge_memory(state: State, ahead: Ahead, sign: int) -> None:
    """Take the memory of the jobs that end later than in the base from the nodes at the head's start."""
    for place in range(ahead.counters[GROUP]):
        member = ahead.lists[MEMBER, place]
        if ahead.trial[BUSY, member] and not ahead.base[BUSY, member]:
            for part in range(state.jobs[PART_AT, member], state.jobs[PART_AT, member + 1]):
                ahead.room[FREE_KIB, state.parts[NODE, part]] -= sign * state.jobs[MEMORY_KIB, member]


@kernel
def _suited_rooms(state: State, ahead: Ahead, head: int) -> int:
    count = 0
    for place in range(ahead.counters[ROOMS]):
        count += suits(state, ahead, ahead.lists[ROOM, place], head)
    return count


@kernel
def delays_head(state: State, ahead: Ahead, head: int, job: int) -> bool:
    """Return whether ``head`` would start later because ``job``, which holds its cores already, starts now.

    If not, the base projection is brought up to date with ``job``.
    """
    ahead.base[BUSY, job] = 0
    _gather_group(state, ahead, job)
    _project_group(state, ahead, job)
    before = _suited_rooms(state, ahead, head)
    _charge_memory(state, ahead, 1)
    for place in range(ahead.counters[ROOMS]):
        _merge(state, ahead, ahead.lists[ROOM, place])
    fitting = ahead.counters[FITTING] + _suited_rooms(state, ahead, head) - before
    delayed = fitting < state.jobs[NODES, head]
    if delayed:
        _charge_memory(state, ahead, -1)
        for place in range(ahead.counters[ROOMS]):
            node = ahead.lists[ROOM, place]
            copy_node(ahead.base_stack, ahead.trial_stack, node)
            ahead.room[FREE, node] = free_cores(state, ahead.base_stack, node)
    else:
        ahead.counters[FITTING] = fitting
        for place in range(ahead.counters[GROUP]):
            member = ahead.lists[MEMBER, place]
            ahead.base[BUSY, member] = ahead.trial[BUSY, member]
    _forget_group(ahead)
    return bool(delayed)
