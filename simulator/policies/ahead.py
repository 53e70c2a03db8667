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

from dataclasses import dataclass
from typing import NamedTuple

from simulator.engine.agenda import enter_agenda, leave_agenda
from simulator.engine.bits import count_bits
from simulator.engine.compile import kernel
from simulator.engine.occupancy import remove_from_stack
from simulator.engine.progress import done_since, set_speed
from simulator.engine.records import Grid, Maker, Table
from simulator.engine.room import fits
from simulator.engine.segments import request_units
from simulator.engine.speed import note_affected, speed_of
from simulator.engine.state import (
    FAR_US,
    ClockRecord,
    JobRecord,
    ListRecord,
    NodeRecord,
    RunRecord,
    State,
    Timeline,
)


@dataclass(slots=True, eq=False)
class AheadRecord:
    """The head's earliest start, and how many nodes suit it then; whether the base holds for this pass.

    ``members`` is how many jobs the group has, ``nodes`` on how many nodes it is.
    """

    start_us: int = 0
    fitting: int = 0
    known: int = 0
    members: int = 0
    nodes: int = 0


@dataclass(slots=True, eq=False)
class MemberRecord:
    """A job of the group."""

    job: int = 0


@dataclass(slots=True, eq=False)
class GroundRecord:
    """A node that the group is on."""

    node: int = 0


class Ahead(NamedTuple):
    """Two projections: of all running jobs up to the head's start (base), and of one group (trial).

    ``base_stack`` and ``room`` are the cluster at the head's earliest start; in ``base`` the jobs that are
    still there then are busy. ``group_cores[n, w]`` are the cores of the group.
    """

    head: Table[AheadRecord]
    base: Timeline
    base_stack: Grid
    room: Table[NodeRecord]
    trial: Timeline
    trial_stack: Grid
    group: Table[MemberRecord]
    ground: Table[GroundRecord]
    group_cores: Grid


def _new_timeline(make: Maker, jobs: int) -> Timeline:
    return Timeline(make.table(ClockRecord, 1), make.table(RunRecord, jobs), make.table(ListRecord, jobs))


def new_ahead(make: Maker, state: State, jobs: int) -> Ahead:
    """Return the projections of an idle cluster."""
    nodes, slots, words = state.occupied.shape
    return Ahead(
        head=make.table(AheadRecord, 1),
        base=_new_timeline(make, jobs),
        base_stack=make.grid(nodes, slots, words),
        room=make.table(NodeRecord, nodes),
        trial=_new_timeline(make, jobs),
        trial_stack=make.grid(nodes, slots, words),
        group=make.table(MemberRecord, jobs),
        ground=make.table(GroundRecord, nodes),
        group_cores=make.grid(nodes, words),
    )


@kernel
def load(state: State, line: Timeline, job: int) -> None:
    """Take over into a projection the requested work that the running ``job`` still has to do."""
    run, now_us = state.runs[job], state.clock[0].now_us
    _load(line.runs[job], run.request_left - done_since(run, now_us), now_us)


@kernel
def load_waiting(state: State, line: Timeline, job: int) -> None:
    """Take over into a projection all the work that the waiting ``job`` asks for, as if it began now."""
    _load(line.runs[job], request_units(state, state.lives, job), state.clock[0].now_us)


@kernel
def _load(view: RunRecord, units: int, now_us: int) -> None:
    view.left = units
    view.request_left = 0
    view.since_us = now_us
    view.busy = 1
    view.last = 1


@kernel
def launch(state: State, line: Timeline, stack: Grid, job: int) -> None:
    """Let a loaded job go on in the projection."""
    view = line.runs[job]
    speed = speed_of(state, line.runs, stack, job)
    view.speed = speed
    view.next_us = line.clock[0].now_us + (view.left + speed - 1) // speed
    enter_agenda(line, job)


@kernel
def end_next(state: State, line: Timeline, stack: Grid) -> int:
    """End the first job of a projection, and speed up those that shared its cores; return it."""
    job = line.lists[0].agenda
    line.clock[0].now_us = line.runs[job].next_us
    leave_agenda(line, job)
    note_affected(state, line, stack, job)
    line.runs[job].busy = 0
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        remove_from_stack(stack, state.mask, state.parts[part].node, part)
    for place in range(line.clock[0].affected):
        other = line.lists[place].affected
        set_speed(line, other, speed_of(state, line.runs, stack, other))
    return job


@kernel
def free_cores(state: State, stack: Grid, node: int) -> int:
    """Return how many cores of ``node`` have a free slot in ``stack``."""
    top = stack.shape[1] - 1
    free = 0
    for word in range(stack.shape[2]):
        free += count_bits(state.valid[word] & ~stack[node, top, word])
    return free


@kernel
def copy_node(target: Grid, source: Grid, node: int) -> None:
    """Copy the stack of one node."""
    for level in range(source.shape[1]):
        for word in range(source.shape[2]):
            target[node, level, word] = source[node, level, word]


@kernel
def _copy_cluster(state: State, ahead: Ahead, asked: JobRecord) -> int:
    """Copy the cluster as it is; return how many nodes suit the head."""
    fitting = 0
    for index in range(state.rules[0].nodes):
        node = ahead.room[index]
        node.free = state.nodes[index].free
        node.free_kib = state.nodes[index].free_kib
        node.owner = state.nodes[index].owner
        fitting += int(fits(asked, node))
        copy_node(ahead.base_stack, state.occupied, index)
    return fitting


@kernel
def find_start(state: State, ahead: Ahead, head: int) -> None:
    """Project all running jobs up to the earliest start of ``head``, all ends at that instant included."""
    base, clock = ahead.base, ahead.base.clock[0]
    asked = state.jobs[head]
    fitting = _copy_cluster(state, ahead, asked)
    clock.agenda = 0
    clock.now_us = state.clock[0].now_us
    for place in range(state.clock[0].active):
        load(state, base, state.lists[place].running)
    for place in range(state.clock[0].active):
        launch(state, base, ahead.base_stack, state.lists[place].running)
    while clock.agenda > 0:
        if fitting >= asked.nodes and base.runs[base.lists[0].agenda].next_us > clock.now_us:
            break
        job = end_next(state, base, ahead.base_stack)
        for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
            index = state.parts[part].node
            node = ahead.room[index]
            before = fits(asked, node)
            node.free = free_cores(state, ahead.base_stack, index)
            node.free_kib += state.jobs[job].memory_kib
            fitting += int(fits(asked, node)) - int(before)
    ahead.head[0].start_us = clock.now_us if fitting >= asked.nodes else FAR_US  # nodes are down
    ahead.head[0].fitting = fitting
    ahead.head[0].known = 1
