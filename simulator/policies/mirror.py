"""Looking ahead where Slurm's rows decide who has room: the whole state is copied and run forward.

The rule is that of ``ahead``: every job that holds cores counts as busy, nothing else starts, and each goes
on until it has done its requested work. The head's earliest start is the first instant at which the placement
takes it, after all that ends at that instant. Every end packs the rows of the whole pool anew, so nothing
less than the whole pool tells what a candidate changes: it is run forward with each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.engine.agenda import enter_running, present
from simulator.engine.compile import kernel
from simulator.engine.occupancy import take_slots
from simulator.engine.progress import release, set_speeds
from simulator.engine.records import Grid, Maker, Table
from simulator.engine.room import job_fits
from simulator.engine.rows import enter_row, leave_row
from simulator.engine.state import (
    FAR_US,
    ClockRecord,
    ListRecord,
    NodeRecord,
    PartRecord,
    Rows,
    RunRecord,
    State,
)
from simulator.placement.builtin import place
from simulator.policies.ahead import copy_node, launch, load, load_waiting


@dataclass(slots=True, eq=False)
class MirrorRecord:
    """The head's earliest start, and whether it is known in this pass."""

    start_us: int = 0
    known: int = 0


class Mirror(NamedTuple):
    """The head's earliest start, and a state of its own for finding it.

    ``stack`` and ``rows`` are those of ``image``, ``real_rows`` those of the state that is copied.
    """

    head: Table[MirrorRecord]
    image: State
    stack: Grid
    rows: Rows
    real_rows: Rows


def new_mirror(make: Maker, state: State) -> Mirror:
    """Return a mirror that shows nothing yet; it shares with ``state`` what a projection does not change."""
    assert state.rows is not None
    jobs, slots = len(state.runs), len(state.rows.order)
    stack = make.grid(*state.occupied.shape)
    rows = Rows(
        cells=make.grid(*state.rows.cells.shape),
        size=make.zeros(slots),
        order=make.zeros(slots),
        kept=make.zeros(slots),
    )
    image = state._replace(
        clock=make.table(ClockRecord, 1),
        runs=make.table(RunRecord, jobs),
        lists=make.table(ListRecord, jobs),
        nodes=make.table(NodeRecord, len(state.nodes)),
        parts=make.table(PartRecord, len(state.parts)),
        roomy=make.zeros(len(state.roomy)),
        listed=make.grid(*state.listed.shape, short=True),
        occupied=make.grid(*state.occupied.shape),
        busy=stack,
        rows=rows,
    )
    return Mirror(make.table(MirrorRecord, 1), image, stack, rows, state.rows)


@kernel
def _copy_nodes(state: State, image: State) -> None:
    """Copy the nodes and who is on them."""
    for index in range(state.rules[0].nodes):
        node, shown = state.nodes[index], image.nodes[index]
        shown.free, shown.free_kib, shown.used = node.free, node.free_kib, node.used
        shown.listed, shown.factor, shown.owner = node.listed, node.factor, node.owner
        for place_on in range(node.listed):
            image.listed[index, place_on] = state.listed[index, place_on]
        copy_node(image.occupied, state.occupied, index)
    for free in range(len(state.roomy)):
        image.roomy[free] = state.roomy[free]


@kernel
def _copy_rows(rows: Rows, shown: Rows) -> None:
    for row in range(len(rows.order)):
        shown.order[row] = rows.order[row]
        shown.size[row] = rows.size[row]
        for node in range(rows.cells.shape[1]):
            for word in range(rows.cells.shape[2]):
                shown.cells[row, node, word] = rows.cells[row, node, word]


@kernel
def _copy_job(state: State, image: State, job: int) -> None:
    """Copy a running job with the requested work that it has left, in one last busy phase."""
    run, shown = state.runs[job], image.runs[job]
    load(state, present(image), job)
    shown.running_at = run.running_at
    shown.row = run.row
    shown.first_core = run.first_core
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        image.parts[part].node = state.parts[part].node
        image.parts[part].job = job
        image.parts[part].place = state.parts[part].place


@kernel
def _copy(state: State, mirror: Mirror) -> None:
    """Show the state as it is, with every job busy and nobody on the agenda."""
    image, clock = mirror.image, mirror.image.clock[0]
    _copy_nodes(state, image)
    _copy_rows(mirror.real_rows, mirror.rows)
    clock.now_us = state.clock[0].now_us
    clock.active = state.clock[0].active
    clock.closed = state.clock[0].closed
    clock.agenda = 0
    for place_in in range(clock.active):
        image.lists[place_in].running = state.lists[place_in].running
        image.lists[place_in].by_core = state.lists[place_in].by_core
        _copy_job(state, image, state.lists[place_in].running)


@kernel
def _join(state: State, mirror: Mirror, job: int) -> None:
    """Let the waiting ``job`` hold the cores that its parts name."""
    image = mirror.image
    load_waiting(state, present(image), job)
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        image.parts[part].node = state.parts[part].node
    enter_running(image, job)
    take_slots(image, job)
    enter_row(image, mirror.rows, job)


@kernel
def _launch(mirror: Mirror) -> None:
    """Let all running jobs go on, at the speed that they have beside each other."""
    image, stack = mirror.image, mirror.stack
    line = present(image)
    for node in range(stack.shape[0]):
        copy_node(stack, image.occupied, node)
    for place_in in range(image.clock[0].active):
        launch(image, line, stack, image.lists[place_in].running)


@kernel
def _pack(mirror: Mirror, ended: int) -> None:
    """Pack the rows after each of the last jobs that ended, in their order."""
    image = mirror.image
    for place_in in range(ended):
        count = image.clock[0].active + ended - 1 - place_in
        leave_row(image, mirror.rows, image.lists[place_in].ended, count)


@kernel
def _run_forward(mirror: Mirror, head: int, latest_us: int) -> int:
    """Return when the placement takes ``head``; ``FAR_US`` if that is after ``latest_us``.

    Rows matter to nobody before there is room for ``head``, so they are packed no sooner.
    """
    image, clock = mirror.image, mirror.image.clock[0]
    ended = 0
    while clock.now_us <= latest_us:
        next_us = FAR_US if clock.agenda == 0 else image.runs[image.lists[0].agenda].next_us
        if next_us > clock.now_us and job_fits(image, head):
            _pack(mirror, ended)
            ended = 0
            if place(image, head):
                return clock.now_us
        if next_us == FAR_US:
            break
        job = image.lists[0].agenda
        clock.now_us = next_us
        release(image, job)
        set_speeds(image, job)
        image.lists[ended].ended = job
        ended += 1
    return FAR_US


@kernel
def show_start(state: State, mirror: Mirror, head: int) -> None:
    """Find the earliest start of ``head``; the mirror then shows the cluster at that instant."""
    _copy(state, mirror)
    _launch(mirror)
    mirror.head[0].start_us = _run_forward(mirror, head, FAR_US)
    mirror.head[0].known = 1


@kernel
def delays_head(state: State, mirror: Mirror, head: int, job: int) -> bool:
    """Return whether ``head`` would start later if ``job`` started now on the cores that its parts name.

    If not, the earliest start is brought up to date with ``job``.
    """
    known = mirror.head[0]
    if known.known == 0 or known.start_us < state.clock[0].now_us:
        show_start(state, mirror, head)
    if known.start_us == FAR_US:  # nodes are down
        return False
    _copy(state, mirror)
    _join(state, mirror, job)
    _launch(mirror)
    start_us = _run_forward(mirror, head, known.start_us)
    if start_us == FAR_US:
        return True
    known.start_us = start_us
    return False
