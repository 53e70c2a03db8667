"""The shadow of dedicated cores: when the head of the queue can start, where requested ends never move.

With one slot a core and equal nodes, a job's requested end is known when it starts. The running jobs are kept
in order of it; the earliest start of the head follows by walking that list. While nothing waits nobody needs
the list, so it is dropped when the queue is empty, and made anew when it is wanted.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.engine.compile import kernel
from simulator.engine.state import (
    ACTIVE,
    CORES,
    FREE,
    FREE_KIB,
    MEMORY_KIB,
    NODE,
    NODES,
    NOW,
    PART_AT,
    REQUEST_US,
    RUNNING,
    START_US,
    Ints,
    State,
)

COUNT, SHADOW_US, FITTING, KNOWN, MOVED = range(5)
"""Places in ``Shadow.counters``."""

COUNTERS = 5

ENDS_US, ENDS_JOB = range(2)
"""Fields of ``Shadow.ends``."""


class Shadow(NamedTuple):
    """Running jobs by requested end, and the cluster as it is at the shadow instant.

    ``ends`` ascends by time; ``counters`` hold its length (``NEVER`` while it is not kept), the shadow
    instant, how many nodes suit the head then, whether the latter two are known for the present head and
    running set, and whether a job has started since one before it in the queue was refused, which may lie
    elsewhere now. ``room[FREE]`` and ``room[FREE_KIB]`` of each node are for that instant.
    """

    counters: Ints
    ends: Ints
    room: Ints


@kernel
def note_start(state: State, shadow: Shadow, job: int) -> None:
    """Sort ``job``, which has just started, into the list of requested ends."""
    if shadow.counters[COUNT] < 0:
        return
    ends = shadow.ends
    end_us = state.run[START_US, job] + state.jobs[REQUEST_US, job]
    place = shadow.counters[COUNT]
    while place > 0 and ends[ENDS_US, place - 1] > end_us:
        ends[ENDS_US, place] = ends[ENDS_US, place - 1]
        ends[ENDS_JOB, place] = ends[ENDS_JOB, place - 1]
        place -= 1
    ends[ENDS_US, place] = end_us
    ends[ENDS_JOB, place] = job
    shadow.counters[COUNT] += 1


@kernel
def note_end(state: State, shadow: Shadow, job: int) -> None:
    """Take ``job``, which has ended, off the list of requested ends."""
    if shadow.counters[COUNT] < 0:
        return
    ends = shadow.ends
    end_us = state.run[START_US, job] + state.jobs[REQUEST_US, job]
    low = 0
    high = shadow.counters[COUNT]
    while low < high:
        middle = (low + high) // 2
        if ends[ENDS_US, middle] < end_us:
            low = middle + 1
        else:
            high = middle
    while ends[ENDS_JOB, low] != job:
        low += 1
    last = shadow.counters[COUNT] - 1
    for place in range(low, last):
        ends[ENDS_US, place] = ends[ENDS_US, place + 1]
        ends[ENDS_JOB, place] = ends[ENDS_JOB, place + 1]
    shadow.counters[COUNT] = last


@kernel
def _list_ends(state: State, shadow: Shadow) -> None:
    """Make the list of requested ends anew, by Shell's sort."""
    ends = shadow.ends
    count = state.clock[ACTIVE]
    for place in range(count):
        job = state.run[RUNNING, place]
        ends[ENDS_US, place] = state.run[START_US, job] + state.jobs[REQUEST_US, job]
        ends[ENDS_JOB, place] = job
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for right in range(gap, count):
            end_us = ends[ENDS_US, right]
            job = ends[ENDS_JOB, right]
            place = right
            while place >= gap and ends[ENDS_US, place - gap] > end_us:
                ends[ENDS_US, place] = ends[ENDS_US, place - gap]
                ends[ENDS_JOB, place] = ends[ENDS_JOB, place - gap]
                place -= gap
            ends[ENDS_US, place] = end_us
            ends[ENDS_JOB, place] = job
        gap //= 3
    shadow.counters[COUNT] = count


@kernel
def _suits(state: State, shadow: Shadow, node: int, head: int) -> bool:
    return bool(
        shadow.room[FREE, node] >= state.jobs[CORES, head]
        and shadow.room[FREE_KIB, node] >= state.jobs[MEMORY_KIB, head]
    )


@kernel
def _return_parts(state: State, shadow: Shadow, job: int, head: int, sign: int) -> None:
    """Give the cores of ``job`` back (1) or take them (-1), and count the nodes that suit ``head``."""
    for part in range(state.jobs[PART_AT, job], state.jobs[PART_AT, job + 1]):
        node = state.parts[NODE, part]
        before = _suits(state, shadow, node, head)
        shadow.room[FREE, node] += sign * state.jobs[CORES, job]
        shadow.room[FREE_KIB, node] += sign * state.jobs[MEMORY_KIB, job]
        shadow.counters[FITTING] += _suits(state, shadow, node, head) - before


@kernel
def find_shadow(state: State, shadow: Shadow, head: int) -> None:
    """Find the earliest start of ``head``; all that ends at that very instant has then ended."""
    if shadow.counters[COUNT] < 0:
        _list_ends(state, shadow)
    fitting = 0
    for node in range(state.nodes.shape[1]):
        shadow.room[FREE, node] = state.nodes[FREE, node]
        shadow.room[FREE_KIB, node] = state.nodes[FREE_KIB, node]
        fitting += _suits(state, shadow, node, head)
    shadow.counters[FITTING] = fitting
    instant = state.clock[NOW]
    for place in range(shadow.counters[COUNT]):
        if shadow.counters[FITTING] >= state.jobs[NODES, head] and shadow.ends[ENDS_US, place] > instant:
            break
        instant = max(instant, shadow.ends[ENDS_US, place])
        _return_parts(state, shadow, shadow.ends[ENDS_JOB, place], head, 1)
    shadow.counters[SHADOW_US] = instant
    shadow.counters[KNOWN] = 1


@kernel
def delays_head(state: State, shadow: Shadow, head: int, job: int) -> bool:
    """Return whether ``head`` would start later if ``job`` started now on the cores that its parts name.

    If not, the shadow's cluster is brought up to date with ``job``.
    """
    if state.clock[NOW] + state.jobs[REQUEST_US, job] <= shadow.counters[SHADOW_US]:
        return False
    _return_parts(state, shadow, job, head, -1)
    if shadow.counters[FITTING] >= state.jobs[NODES, head]:
        return False
    _return_parts(state, shadow, job, head, 1)
    return True
