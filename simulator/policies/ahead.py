"""Looking ahead where cores are shared: running jobs projected forward on their requested work.

The rule (``docs/mechanisms.md``): every job that holds cores counts as busy, nothing else starts, and each
goes on until it has done its requested work. The head's earliest start is the first instant at which enough
nodes have room for it. A job may be backfilled if, projected with it, that instant is not later.

Adding a job never makes another one end sooner, so "not later" means "at that instant there is still room".
It slows those that it shares cores with; one of these slows others longer than before only from the instant
at which it would have ended. So all that a candidate can change by the head's start is the presence of jobs
that would have ended by then, and that are linked to it by shared cores through such jobs: its *group*. A
candidate is tried by projecting its group alone, among the jobs that stay, and by comparing the nodes of the
group. (Where speeds depend on who the others are, and not only on how many, the group is made of all jobs so
linked.)
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.engine.agenda import enter_agenda, leave_agenda
from simulator.engine.bits import count_bits
from simulator.engine.compile import kernel
from simulator.engine.occupancy import remove_from_stack
from simulator.engine.progress import set_speed
from simulator.engine.speed import note_affected, speed_of
from simulator.engine.state import (
    ACTIVE,
    AFFECTED,
    AGENDA,
    BUSY,
    CORES,
    FREE,
    FREE_KIB,
    HEAP,
    LAST,
    LEFT,
    MEMORY_KIB,
    NEXT_US,
    NODE,
    NODES,
    NOW,
    PART_AT,
    REQUEST_LEFT,
    RUNNING,
    SINCE_US,
    SPEED,
    TOUCHED,
    Ints,
    State,
)

SHADOW_US, FITTING, ROOMS, GROUP, KNOWN = range(5)
"""Places in ``Ahead.counters``."""

MEMBER, ROOM = range(2)
"""Fields of ``Ahead.lists``: the jobs of the group, and the nodes it is on."""


class Ahead(NamedTuple):
    """Two projections: of all running jobs up to the head's start (base), and of one group (trial).

    ``base`` and ``trial`` are tables like ``State.run``, with a clock each. ``base_stack`` and ``room`` are
    the cluster at the head's earliest start; ``base[BUSY]`` flags the jobs that are still there then.
    ``group_cores[n, w]`` are the cores of the group.
    """

    counters: Ints
    base: Ints
    base_clock: Ints
    base_stack: Ints
    room: Ints
    trial: Ints
    trial_clock: Ints
    trial_stack: Ints
    group_cores: Ints
    lists: Ints


@kernel
def load(state: State, view: Ints, job: int) -> None:
    """Take over into the projection ``view`` the requested work that the running ``job`` still has to do."""
    run = state.run
    now = state.clock[NOW]
    done = min(run[LEFT, job], (now - run[SINCE_US, job]) * run[SPEED, job])
    view[LEFT, job] = run[REQUEST_LEFT, job] - done
    view[REQUEST_LEFT, job] = 0
    view[SINCE_US, job] = now
    view[BUSY, job] = 1
    view[LAST, job] = 1


@kernel
def launch(state: State, view: Ints, clock: Ints, stack: Ints, job: int) -> None:
    """Let a loaded job go on in the projection."""
    speed = speed_of(state, view, stack, job)
    view[SPEED, job] = speed
    view[NEXT_US, job] = clock[NOW] + (view[LEFT, job] + speed - 1) // speed
    enter_agenda(view, clock, job)


@kernel
def end_next(state: State, view: Ints, clock: Ints, stack: Ints) -> int:
    """End the first job of a projection, and speed up those that shared its cores; return it."""
    job: int = view[HEAP, 0]
    clock[NOW] = view[NEXT_US, job]
    leave_agenda(view, clock, job)
    note_affected(state, view, clock, stack, job)
    view[BUSY, job] = 0
    for part in range(state.jobs[PART_AT, job], state.jobs[PART_AT, job + 1]):
        remove_from_stack(stack, state.mask, state.parts[NODE, part], part)
    for place in range(clock[TOUCHED]):
        other = view[AFFECTED, place]
        set_speed(view, clock, other, speed_of(state, view, stack, other))
    return job


@kernel
def free_cores(state: State, stack: Ints, node: int) -> int:
    """Return how many cores of ``node`` have a free slot in ``stack``."""
    top = stack.shape[1] - 1
    free = 0
    for word in range(stack.shape[2]):
        free += count_bits(state.valid[word] & ~stack[node, top, word])
    return free


@kernel
def suits(state: State, ahead: Ahead, node: int, head: int) -> bool:
    """Return whether ``node`` has room for a part of ``head`` at the head's earliest start."""
    return bool(
        ahead.room[FREE, node] >= state.jobs[CORES, head]
        and ahead.room[FREE_KIB, node] >= state.jobs[MEMORY_KIB, head]
    )


@kernel
def copy_node(target: Ints, source: Ints, node: int) -> None:
    """Copy the stack of one node."""
    for level in range(source.shape[1]):
        for word in range(source.shape[2]):
            target[node, level, word] = source[node, level, word]


@kernel
def find_start(state: State, ahead: Ahead, head: int) -> None:
    """Project all running jobs up to the earliest start of ``head``, all ends at that instant included."""
    base, clock = ahead.base, ahead.base_clock
    fitting = 0
    for node in range(state.nodes.shape[1]):
        ahead.room[FREE, node] = state.nodes[FREE, node]
        ahead.room[FREE_KIB, node] = state.nodes[FREE_KIB, node]
        fitting += suits(state, ahead, node, head)
        copy_node(ahead.base_stack, state.occupied, node)
    clock[AGENDA] = 0
    clock[NOW] = state.clock[NOW]
    for place in range(state.clock[ACTIVE]):
        load(state, base, state.run[RUNNING, place])
    for place in range(state.clock[ACTIVE]):
        launch(state, base, clock, ahead.base_stack, state.run[RUNNING, place])
    while clock[AGENDA] > 0:
        if fitting >= state.jobs[NODES, head] and base[NEXT_US, base[HEAP, 0]] > clock[NOW]:
            break
        job = end_next(state, base, clock, ahead.base_stack)
        for part in range(state.jobs[PART_AT, job], state.jobs[PART_AT, job + 1]):
            node = state.parts[NODE, part]
            before = suits(state, ahead, node, head)
            ahead.room[FREE, node] = free_cores(state, ahead.base_stack, node)
            ahead.room[FREE_KIB, node] += state.jobs[MEMORY_KIB, job]
            fitting += suits(state, ahead, node, head) - before
    ahead.counters[SHADOW_US] = clock[NOW]
    ahead.counters[FITTING] = fitting
