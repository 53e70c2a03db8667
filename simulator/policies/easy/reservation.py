"""The reservation of the queue's head: its shadow time, from a list of ends or from a projection.

The shadow of dedicated cores: when the head of the queue can start, where requested ends never move.

With one slot a core and equal nodes, a job's requested end is known when it starts. The running jobs are kept
in order of it; the earliest start of the head follows by walking that list. While nothing waits no job needs
the list, so it is dropped when the queue is empty, and made anew when it is wanted.

Looking ahead where cores are shared: running jobs projected forward on their requested work.

The rule (``docs/mechanisms.md``): every job that holds cores counts as busy, nothing else starts, and each
goes on until it has done its requested work. The head's earliest start is the first instant at which the
placement takes it: at which it fits on enough nodes, and one of Slurm's rows, where there are rows
(``mirror``). A job may be backfilled if, projected with it, that instant is not later.

Adding a job never makes another one end sooner. It slows those that it shares cores with; one of these slows
others longer than before only from the instant at which it would have ended. So all that a candidate can
change by the head's start is the presence of jobs that would have ended by then, and that are linked to it by
shared cores through such jobs: its *group*. A candidate is tried by projecting its group alone, among the
jobs that stay (``trial``). (Where speeds depend on who the others are, and not only on how many, the group is
made of all jobs so linked.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.cores.core_slots import add_to_stack, cores_at_top, remove_from_stack
from simulator.cores.node_fitting import change_then, show_then
from simulator.jit.compilation import kernel, kernel_state
from simulator.jit.field_records import IntegerGrid, IntegerRow, RecordTable, StateAllocator
from simulator.lifecycle.job_progress import done_since, note_affected, set_speed, speed_of
from simulator.lifecycle.segments import asks_us, request_units, requested_end_us
from simulator.model.system import FAR_US
from simulator.state.engine_state import (
    NEVER,
    EngineClockRecord,
    EngineState,
    Links,
    ListRecord,
    RunRecord,
    Timeline,
)
from simulator.state.event_queue import enter_agenda, leave_agenda


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


@kernel_state
class Shadow(NamedTuple):
    """Running jobs by requested end, ascending; what classes have ``then`` is for the shadow instant."""

    head: RecordTable[ShadowRecord]
    ends: RecordTable[EndRecord]


@kernel
def note_start(state: EngineState, shadow: Shadow, job: int) -> None:
    """Sort ``job``, which has just started, into the list of requested ends."""
    count = shadow.head[0].count
    if count < 0:
        return
    ends = shadow.ends
    end_us = requested_end_us(state, state.lifecycles, job)
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
    end_us = requested_end_us(state, state.lifecycles, job)
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
        ends[place].us = requested_end_us(state, state.lifecycles, job)
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
def _return_pieces(state: EngineState, shadow: Shadow, job: int, head: int, sign: int) -> None:
    """Give the cores of ``job`` back (1) or take them (-1), and count the nodes that suit ``head``."""
    asked, cores, memory_kib = (
        state.jobs[head],
        sign * state.jobs[job].cores,
        sign * state.jobs[job].memory_kib,
    )
    more = 0
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        more += change_then(asked, state.classes[held.node_class], cores, memory_kib)
        piece = held.next
    shadow.head[0].fitting += more


@kernel
def find_shadow(state: EngineState, shadow: Shadow, head: int) -> None:
    """Find the earliest start of ``head``; all that ends at that very instant has then ended."""
    if shadow.head[0].count < 0:
        _list_ends(state, shadow)
    asked = state.jobs[head]
    fitting = 0
    for node_class in range(state.clock[0].classes):
        fitting += show_then(asked, state.classes[node_class])
    shadow.head[0].fitting = fitting
    instant = state.clock[0].now_us
    for place in range(shadow.head[0].count):
        if shadow.head[0].fitting >= asked.nodes and shadow.ends[place].us > instant:
            break
        instant = max(instant, shadow.ends[place].us)
        _return_pieces(state, shadow, shadow.ends[place].job, head, 1)
    if shadow.head[0].fitting < asked.nodes:  # nodes are down
        instant = FAR_US
    shadow.head[0].start_us = instant
    shadow.head[0].known = 1


@kernel
def delays_head(state: EngineState, shadow: Shadow, head: int, job: int) -> bool:
    """Return whether ``head`` would start later if ``job`` started now on the cores of its pieces.

    If not, the shadow's cluster is brought up to date with ``job``.
    """
    if shadow.head[0].known == 0:
        find_shadow(state, shadow, head)
    if state.clock[0].now_us + asks_us(state, state.lifecycles, job) <= shadow.head[0].start_us:
        return False
    _return_pieces(state, shadow, job, head, -1)
    if shadow.head[0].fitting >= state.jobs[head].nodes:
        return False
    _return_pieces(state, shadow, job, head, 1)
    return True


@kernel
def drop_shadow(shadow: Shadow) -> None:
    """Keep no list of ends: no job waits."""
    shadow.head[0].count = NEVER


@dataclass(slots=True, eq=False)
class AheadRecord:
    """The head's earliest start, and on how many nodes it fits then; whether both hold for this pass.

    ``ends`` is how many jobs have ended by then. ``members`` is how many jobs the group has, ``classes``
    on how many classes of nodes it is, ``group_ends`` how many of them have ended; ``next_ends`` counts all
    ends with it.
    """

    start_us: int = 0
    fitting: int = 0
    known: int = 0
    ends: int = 0
    members: int = 0
    classes: int = 0
    group_ends: int = 0
    next_ends: int = 0


@dataclass(slots=True, eq=False)
class MemberRecord:
    """A job of the group."""

    job: int = 0


@kernel_state
class ReservationProjection(NamedTuple):
    """Two projections: of all running jobs up to the head's start (base), and of one group (trial).

    What classes have ``then`` is the cluster at the head's earliest start, ``ends`` are the jobs that
    have ended by then, in their order; in ``base`` the others are busy. Of the group,
    ``in_group`` (by job) and ``on_ground`` (by class) say which jobs are in it and where it is;
    ``group_ends`` are the ends in it, ``next_ends`` all ends with it.
    """

    head: RecordTable[AheadRecord]
    base: Timeline
    ends: RecordTable[EndRecord]
    trial: Timeline
    trial_stack: IntegerGrid
    group: RecordTable[MemberRecord]
    in_group: IntegerRow
    ground: IntegerRow
    on_ground: IntegerRow
    group_ends: RecordTable[EndRecord]
    next_ends: RecordTable[EndRecord]


def _new_timeline(make: StateAllocator, jobs: int) -> Timeline:
    return Timeline(
        make.table(EngineClockRecord, 1), make.table(RunRecord, jobs), make.table(ListRecord, jobs)
    )


def new_ahead(make: StateAllocator, state: EngineState, jobs: int) -> ReservationProjection:
    """Return the projections of an idle cluster."""
    nodes, slots, words = state.occupied.shape
    return ReservationProjection(
        head=make.table(AheadRecord, 1),
        base=_new_timeline(make, jobs),
        ends=make.table(EndRecord, jobs),
        trial=_new_timeline(make, jobs),
        trial_stack=make.grid(nodes, slots, words),
        group=make.table(MemberRecord, jobs),
        in_group=make.zeros(jobs),
        ground=make.zeros(nodes),
        on_ground=make.zeros(nodes),
        group_ends=make.table(EndRecord, jobs),
        next_ends=make.table(EndRecord, jobs),
    )


@kernel
def load(state: EngineState, line: Timeline, job: int) -> None:
    """Take over into a projection the requested work that the running ``job`` still has to do."""
    run, now_us = state.runs[job], state.clock[0].now_us
    _load(line.runs[job], run.request_left - done_since(run, now_us), now_us)
    _count_more(state.links, line, job)


@kernel
def load_waiting(state: EngineState, line: Timeline, job: int) -> None:
    """Take over into a projection all the work that the waiting ``job`` asks for, as if it began now."""
    _load(line.runs[job], request_units(state, state.lifecycles, job), state.clock[0].now_us)
    _count_more(state.links, line, job)


@kernel
def _count_more(links: Links | None, line: Timeline, job: int) -> None:
    """Note that all who have a core in common with ``job`` are busy."""
    if links is not None:
        line.runs[job].co_located = links.of[job].count


@kernel
def _load(view: RunRecord, units: int, now_us: int) -> None:
    view.left = units
    view.request_left = 0
    view.since_us = now_us
    view.busy = 1
    view.last = 1


@kernel
def launch(state: EngineState, line: Timeline, stack: IntegerGrid, job: int) -> None:
    """Let a loaded job go on in the projection."""
    view = line.runs[job]
    speed = speed_of(state, line.runs, stack, job)
    view.speed = speed
    view.next_us = line.clock[0].now_us + (view.left + speed - 1) // speed
    enter_agenda(line, job)


@kernel
def end_first(state: EngineState, line: Timeline) -> int:
    """End the first job of a projection, which still holds its cores, and list whom it slowed; return it."""
    job = line.lists[0].agenda
    line.clock[0].now_us = line.runs[job].next_us
    leave_agenda(line, job)
    note_affected(state.links, line, job, -1)
    line.runs[job].busy = 0
    return job


@kernel
def speed_up(state: EngineState, line: Timeline, stack: IntegerGrid) -> None:
    """Give those whom the job that has just ended slowed the speed that they have without it."""
    for place in range(line.clock[0].affected):
        other = line.lists[place].affected
        set_speed(line, other, speed_of(state, line.runs, stack, other))


@kernel
def copy_class(target: IntegerGrid, source: IntegerGrid, node_class: int) -> None:
    """Copy the stack of one class."""
    for level in range(source.shape[1]):
        for word in range(source.shape[2]):
            target[node_class, level, word] = source[node_class, level, word]


@kernel
def show_cluster(state: EngineState, ahead: ReservationProjection, head: int) -> None:
    """Show in the base the cluster as it is, and every running job busy with the work that it has left.

    None of them is on the agenda yet.
    """
    base, fitting = ahead.base, 0
    for node_class in range(state.clock[0].classes):
        fitting += show_then(state.jobs[head], state.classes[node_class])
        copy_class(state.then_stack, state.occupied, node_class)
    ahead.head[0].fitting = fitting
    ahead.head[0].ends = 0
    base.clock[0].agenda = 0
    base.clock[0].now_us = state.clock[0].now_us
    for place in range(state.clock[0].active):
        load(state, base, state.lists[place].running)


@kernel
def occupy_cores(state: EngineState, ahead: ReservationProjection, head: int, job: int) -> None:
    """Let ``job`` hold its cores in the cluster that is shown, and count the nodes for ``head``."""
    asked, cores, memory_kib = state.jobs[head], state.jobs[job].cores, state.jobs[job].memory_kib
    stack, more = state.then_stack, 0
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        add_to_stack(stack, state.piece_cores, held.node_class, piece)
        free = cores_at_top(stack, state.piece_cores, held.node_class, piece, cores)
        more += change_then(asked, state.classes[held.node_class], -free, -memory_kib)
        piece = held.next
    ahead.head[0].fitting += more


@kernel
def release_cores(state: EngineState, ahead: ReservationProjection, head: int, job: int) -> None:
    """Let ``job`` give back its cores in the cluster that is shown, and count the nodes for ``head``."""
    asked, cores, memory_kib = state.jobs[head], state.jobs[job].cores, state.jobs[job].memory_kib
    stack, more = state.then_stack, 0
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        free = cores_at_top(stack, state.piece_cores, held.node_class, piece, cores)
        remove_from_stack(stack, state.piece_cores, held.node_class, piece)
        more += change_then(asked, state.classes[held.node_class], free, memory_kib)
        piece = held.next
    ahead.head[0].fitting += more
