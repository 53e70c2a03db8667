"""The shadow of dedicated cores: when the head of the queue can start, where requested ends never move.

With one slot a core and equal nodes, a job's requested end is known when it starts. The running jobs are kept
in order of it; the earliest start of the head follows by walking that list. While nothing waits no job needs
the list, so it is dropped when the queue is empty, and made anew when it is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.cores.node_fitting import fits
from simulator.jit.compilation import kernel
from simulator.jit.field_records import RecordTable, StateAllocator
from simulator.lifecycle.segments import asks_us, requested_end_us
from simulator.state.engine_state import FAR_US, NEVER, EngineNodeRecord, EngineState


@dataclass(slots=True, eq=False)
class ShadowRecord:
    """The shadow instant.

    ``count`` is the length of the list of ends (``NEVER`` while it is not kept), ``start_us`` the earliest
    start of the head, ``fitting`` how many nodes suit it then; ``known`` says whether these two hold for the
    present head and running set, ``moved`` whether a job has started since one before it in the queue was
    refused, which may lie elsewhere now.
    """

    count: int = 0
    start_us: int = 0
    fitting: int = 0
    known: int = 0
    moved: int = 0


@dataclass(slots=True, eq=False)
class EndRecord:
    """A running job and its requested end."""

    us: int = 0
    job: int = 0


class Shadow(NamedTuple):
    """Running jobs by requested end, and the cluster as it is at the shadow instant.

    ``ends`` ascends by time; ``free`` and ``free_kib`` of each node in ``nodes_then`` are for that instant.
    """

    head: RecordTable[ShadowRecord]
    ends: RecordTable[EndRecord]
    nodes_then: RecordTable[EngineNodeRecord]


def new_shadow(make: StateAllocator, nodes: int, most_running: int) -> Shadow:
    """Return the shadow of an idle cluster."""
    return Shadow(
        head=make.table(ShadowRecord, 1),
        ends=make.table(EndRecord, most_running),
        nodes_then=make.table(EngineNodeRecord, nodes),
    )


@kernel
def note_start(state: EngineState, shadow: Shadow, job: int) -> None:
    """Sort ``job``, which has just started, into the list of requested ends."""
    count = shadow.head[0].count
    if count < 0:
        return
    ends = shadow.ends
    end_us = requested_end_us(state, state.lives, job)
    place = count
    while place > 0 and ends[place - 1].us > end_us:
        ends[place].us = ends[place - 1].us
        ends[place].job = ends[place - 1].job
        place -= 1
    ends[place].us = end_us
    ends[place].job = job
    shadow.head[0].count = count + 1


@kernel
def note_end(state: EngineState, shadow: Shadow, job: int) -> None:
    """Take ``job``, which has ended, off the list of requested ends."""
    if shadow.head[0].count < 0:
        return
    ends = shadow.ends
    end_us = requested_end_us(state, state.lives, job)
    low = 0
    high = shadow.head[0].count
    while low < high:
        middle = (low + high) // 2
        if ends[middle].us < end_us:
            low = middle + 1
        else:
            high = middle
    while ends[low].job != job:
        low += 1
    last = shadow.head[0].count - 1
    for place in range(low, last):
        ends[place].us = ends[place + 1].us
        ends[place].job = ends[place + 1].job
    shadow.head[0].count = last


@kernel
def _list_ends(state: EngineState, shadow: Shadow) -> None:
    """Make the list of requested ends anew, by Shell's sort."""
    ends = shadow.ends
    count = state.clock[0].active
    for place in range(count):
        job = state.lists[place].running
        ends[place].us = requested_end_us(state, state.lives, job)
        ends[place].job = job
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for right in range(gap, count):
            end_us = ends[right].us
            job = ends[right].job
            place = right
            while place >= gap and ends[place - gap].us > end_us:
                ends[place].us = ends[place - gap].us
                ends[place].job = ends[place - gap].job
                place -= gap
            ends[place].us = end_us
            ends[place].job = job
        gap //= 3
    shadow.head[0].count = count


@kernel
def _return_parts(state: EngineState, shadow: Shadow, job: int, head: int, sign: int) -> None:
    """Give the cores of ``job`` back (1) or take them (-1), and count the nodes that suit ``head``."""
    asked, held = state.jobs[head], state.jobs[job]
    for part in range(held.part_at, state.jobs[job].part_end):
        node = shadow.nodes_then[state.parts[part].node]
        before = fits(asked, node)
        node.free += sign * held.cores
        node.free_kib += sign * held.memory_kib
        shadow.head[0].fitting += int(fits(asked, node)) - int(before)


@kernel
def find_shadow(state: EngineState, shadow: Shadow, head: int) -> None:
    """Find the earliest start of ``head``; all that ends at that very instant has then ended."""
    if shadow.head[0].count < 0:
        _list_ends(state, shadow)
    asked = state.jobs[head]
    fitting = 0
    for index in range(state.rules[0].nodes):
        node = shadow.nodes_then[index]
        node.free = state.nodes[index].free
        node.free_kib = state.nodes[index].free_kib
        node.owner = state.nodes[index].owner
        fitting += int(fits(asked, node))
    shadow.head[0].fitting = fitting
    instant = state.clock[0].now_us
    for place in range(shadow.head[0].count):
        if shadow.head[0].fitting >= asked.nodes and shadow.ends[place].us > instant:
            break
        instant = max(instant, shadow.ends[place].us)
        _return_parts(state, shadow, shadow.ends[place].job, head, 1)
    if shadow.head[0].fitting < asked.nodes:  # nodes are down
        instant = FAR_US
    shadow.head[0].start_us = instant
    shadow.head[0].known = 1


@kernel
def delays_head(state: EngineState, shadow: Shadow, head: int, job: int) -> bool:
    """Return whether ``head`` would start later if ``job`` started now on the cores that its parts name.

    If not, the shadow's cluster is brought up to date with ``job``.
    """
    if shadow.head[0].known == 0:
        find_shadow(state, shadow, head)
    if state.clock[0].now_us + asks_us(state, state.lives, job) <= shadow.head[0].start_us:
        return False
    _return_parts(state, shadow, job, head, -1)
    if shadow.head[0].fitting >= state.jobs[head].nodes:
        return False
    _return_parts(state, shadow, job, head, 1)
    return True


@kernel
def drop_shadow(shadow: Shadow) -> None:
    """Keep no list of ends: no job waits."""
    shadow.head[0].count = NEVER
