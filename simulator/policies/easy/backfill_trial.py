"""Tries a candidate of backfilling against the projection, and mirrors Slurm's rows for it.

Trying a candidate for backfilling on shared cores: the projection of its group, against the base.

See ``ahead`` for the rule and for why the group is enough.

Slurm's rows in a projection: packed anew after each of its ends, and asked whether they take the head.

Rows have no effect before the head fits on enough nodes, so they are followed no sooner. What they
are then hangs on all ends up to then, in their order.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.cores.core_slots import add_to_stack, remove_from_stack
from simulator.cores.node_fitting import fits_then
from simulator.cores.row_packing import BLOCK
from simulator.cores.slurm_rows import enter_row, leave_row, new_rows, sort_rows
from simulator.jit.compilation import kernel, kernel_state
from simulator.jit.field_records import IntegerRow, RecordTable, StateAllocator
from simulator.lifecycle.job_progress import needs_stack
from simulator.policies.easy.reservation import (
    EndRecord,
    ReservationProjection,
    copy_class,
    end_first,
    launch,
    load,
    load_waiting,
    occupy_cores,
    release_cores,
    speed_up,
)
from simulator.state.engine_state import NEVER, EngineState, Links, Rows


@kernel_state
class RowMirror(NamedTuple):
    """Rows that are not the real ones.

    They have followed the first ``past[0]`` ends. ``fitting[r]``, scratch, is how many nodes suit the head in
    row ``r``.
    """

    rows: Rows
    past: IntegerRow
    fitting: IntegerRow


def new_mirror(make: StateAllocator, state: EngineState) -> RowMirror:
    """Return a mirror that shows nothing yet."""
    assert state.rows is not None
    jobs, most = len(state.rows.jobs), (len(state.rows.turns) - BLOCK) // 2
    slots = len(state.rows.size)
    return RowMirror(
        rows=new_rows(make, jobs, most, slots, make.grid(*state.rows.cells.shape), make.grid(0, 0)),
        past=make.zeros(1),
        fitting=make.zeros(slots),
    )


@kernel
def _copy_packing(rows: Rows, shown: Rows) -> None:
    packing, image = rows.packing[0], shown.packing[0]
    image.count = packing.count
    image.length = packing.length
    image.changed = packing.changed
    image.failed_at = packing.failed_at
    image.differing = packing.differing
    image.differs_from = packing.differs_from
    image.untidy = packing.untidy


@kernel
def _copy_blocks(rows: Rows, shown: Rows) -> None:
    for index in range(rows.packing[0].length // BLOCK + 1):
        block, image = rows.blocks[index], shown.blocks[index]
        image.dirty = block.dirty
        image.tied = block.tied
        image.calm = block.calm
        for row in range(len(rows.order)):
            shown.leads[index, row] = rows.leads[index, row]
            shown.growth[index, row] = rows.growth[index, row]
        for entry in range(rows.starts.shape[1]):
            shown.starts[index, entry] = rows.starts[index, entry]


@kernel
def _copy_job(rows: Rows, shown: Rows, job: int) -> None:
    entry, image = rows.jobs[job], shown.jobs[job]
    turn, rest = (entry.first_core, entry.size), (entry.at, entry.row, entry.next_row, entry.blocked)
    image.first_core, image.size = turn  # all is read before it is written, so LLVM copies it as a whole
    image.at, image.row, image.next_row, image.blocked = rest
    for row in range(len(rows.order)):
        shown.blocking[job, row] = rows.blocking[job, row]


@kernel
def _copy_cells(rows: Rows, shown: Rows, classes: int) -> None:
    for row in range(len(rows.order)):
        for word in range(rows.cells.shape[2]):
            for node_class in range(classes):  # the longest loop inside, where LLVM makes it of wide words
                shown.cells[row, node_class, word] = rows.cells[row, node_class, word]


@kernel
def _show_rows(rows: Rows | None, shown: Rows, classes: int) -> None:
    """Show the rows as they are, on so many classes; only who runs, or is tried, is looked at there."""
    if rows is None:
        return
    _copy_packing(rows, shown)
    _copy_blocks(rows, shown)
    _copy_cells(rows, shown, classes)
    for row in range(len(rows.order)):
        shown.order[row] = rows.order[row]
        shown.size[row] = rows.size[row]
    for place in range(rows.packing[0].length):
        shown.turns[place] = rows.turns[place]
        if rows.turns[place] != NEVER:
            _copy_job(rows, shown, rows.turns[place])


@kernel
def show_rows(state: EngineState, mirror: RowMirror | None) -> None:
    """Show the rows as they are, where rows are kept."""
    if mirror is not None:
        _show_rows(state.rows, mirror.rows, state.clock[0].classes)
        mirror.past[0] = 0


@kernel
def _count_fitting(state: EngineState, mirror: RowMirror, node_class: int, cores: int) -> int:
    """Count a class for every row in which it has so many cores free; return the most nodes of a row."""
    cells, slots = mirror.rows.cells, state.rules[0].slots
    most = 0
    for row in range(slots):
        spare = 0
        for word in range(len(state.valid)):
            taken = cells[row, node_class, word] | state.then_stack[node_class, slots - 1, word]
            spare += (state.valid[word] & ~taken).bit_count()
        mirror.fitting[row] += int(spare >= cores) * state.classes[node_class].nodes
        most = max(most, mirror.fitting[row])
    return most


@kernel
def _may_fit(state: EngineState, rows: Rows, cores: int) -> bool:
    """Return whether so many cores may be free in some row: no two jobs of a row have one in common."""
    least = rows.size[0]
    for row in range(1, len(rows.size)):
        least = min(least, rows.size[row])
    return state.rules[0].nodes * state.rules[0].cores - least >= cores


@kernel
def _takes(state: EngineState, mirror: RowMirror, head: int, fitting: int) -> bool:
    """Return whether enough nodes suit ``head`` in some row; where it finds idle cores, it does in any.

    ``fitting`` nodes suit it whatever the rows.
    """
    asked = state.jobs[head]
    if not _may_fit(state, mirror.rows, asked.nodes * asked.cores):
        sort_rows(mirror.rows)
        return False
    for row in range(len(mirror.fitting)):
        mirror.fitting[row] = 0
    node_class, most = 0, 0
    while most + fitting >= asked.nodes and node_class < state.clock[0].classes:
        one = state.classes[node_class]
        if one.nodes > 0 and fits_then(asked, one):
            fitting -= one.nodes
            most = max(most, _count_fitting(state, mirror, node_class, asked.cores))
            if most >= asked.nodes:
                return True
        node_class += 1
    sort_rows(mirror.rows)
    return False


@kernel
def take_head(
    state: EngineState,
    mirror: RowMirror | None,
    ends: RecordTable[EndRecord],
    count: int,
    head: int,
    fitting: int,
) -> bool:
    """Return whether the rows take ``head`` after the first ``count`` ends; without rows, free slots do.

    ``fitting`` nodes have the free slots.
    """
    if mirror is None:
        return True
    while mirror.past[0] < count:
        leave_row(state, mirror.rows, ends[mirror.past[0]].job)
        mirror.past[0] += 1
    return _takes(state, mirror, head, fitting)


@kernel
def _join(state: EngineState, ahead: ReservationProjection, job: int) -> None:
    """Make ``job`` a member of the group, and its classes of nodes the group's."""
    ahead.in_group[job] = 1
    ahead.group[ahead.head[0].members].job = job
    ahead.head[0].members += 1
    if needs_stack(state):
        _enter_ground(state, ahead, job)


@kernel
def _enter_ground(state: EngineState, ahead: ReservationProjection, job: int) -> None:
    """Let the classes of ``job`` be the group's, and show who is on them."""
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        if ahead.on_ground[held.node_class] == 0:
            ahead.on_ground[held.node_class] = 1
            ahead.ground[ahead.head[0].classes] = held.node_class
            ahead.head[0].classes += 1
            copy_class(ahead.trial_stack, state.occupied, held.node_class)
        piece = held.next


@kernel
def _gather_group(state: EngineState, ahead: ReservationProjection, links: Links | None, job: int) -> None:
    """List ``job`` and the jobs whose presence at the head's start it may change."""
    ahead.head[0].members = 0
    ahead.head[0].classes = 0
    _join(state, ahead, job)
    if needs_stack(state):
        piece = state.jobs[job].pieces
        while piece != NEVER:
            held = state.pieces[piece]
            add_to_stack(ahead.trial_stack, state.piece_cores, held.node_class, piece)
            piece = held.next
    if links is None:
        return
    pairwise = state.excess is not None
    reached = 0
    while reached < ahead.head[0].members:
        record = links.of[ahead.group[reached].job].first
        reached += 1
        while record != NEVER:
            guest = links.records[record].job
            if not ahead.in_group[guest] and (pairwise or not ahead.base.runs[guest].busy):
                _join(state, ahead, guest)
            record = links.records[record].after


@kernel
def _forget_group(ahead: ReservationProjection) -> None:
    for place in range(ahead.head[0].members):
        ahead.trial.runs[ahead.group[place].job].busy = 0
        ahead.in_group[ahead.group[place].job] = 0
    for place in range(ahead.head[0].classes):
        ahead.on_ground[ahead.ground[place]] = 0


@kernel
def _project_group(state: EngineState, ahead: ReservationProjection, job: int) -> None:
    """Project the group of ``job`` up to the head's start."""
    trial, stack, clock = ahead.trial, ahead.trial_stack, ahead.trial.clock[0]
    clock.agenda = 0
    clock.now_us = state.clock[0].now_us
    load_waiting(state, trial, job)
    for place in range(1, ahead.head[0].members):
        load(state, trial, ahead.group[place].job)
    for place in range(ahead.head[0].members):
        launch(state, trial, stack, ahead.group[place].job)
    count = 0
    while clock.agenda > 0 and trial.runs[trial.lists[0].agenda].next_us <= ahead.head[0].start_us:
        ended = end_first(state, trial)
        if needs_stack(state):
            piece = state.jobs[ended].pieces
            while piece != NEVER:
                held = state.pieces[piece]
                remove_from_stack(stack, state.piece_cores, held.node_class, piece)
                piece = held.next
        speed_up(state, trial, stack)
        ahead.group_ends[count].us = clock.now_us
        ahead.group_ends[count].job = ended
        count += 1
    ahead.head[0].group_ends = count


@kernel
def _is_late(ahead: ReservationProjection, job: int) -> bool:
    """Return whether a member is there at the head's start, where it is not in the base."""
    return bool(ahead.trial.runs[job].busy) and not ahead.base.runs[job].busy


@kernel
def _comes_first(one: EndRecord, other: EndRecord) -> bool:
    return one.us < other.us or (one.us == other.us and one.job < other.job)


@kernel
def _merge_ends(ahead: ReservationProjection) -> None:
    """List all ends up to the head's start in their order: those of the group, and of all others."""
    known, merged = ahead.head[0], ahead.next_ends
    own = 0
    count = 0
    for place in range(known.ends):
        end = ahead.ends[place]
        if ahead.in_group[end.job]:
            continue
        while own < known.group_ends and _comes_first(ahead.group_ends[own], end):
            _set_end(merged, count, ahead.group_ends, own)
            own += 1
            count += 1
        _set_end(merged, count, ahead.ends, place)
        count += 1
    while own < known.group_ends:
        _set_end(merged, count, ahead.group_ends, own)
        own += 1
        count += 1
    known.next_ends = count


@kernel
def _set_end(ends: RecordTable[EndRecord], place: int, others: RecordTable[EndRecord], other: int) -> None:
    ends[place].us = others[other].us
    ends[place].job = others[other].job


@kernel
def _go_back(state: EngineState, ahead: ReservationProjection, head: int, count: int) -> int:
    """Undo all ends at the last instant of the first ``count`` ends; return how many are left."""
    ends = ahead.next_ends
    us = ends[count - 1].us
    while count > 0 and ends[count - 1].us == us:
        count -= 1
        occupy_cores(state, ahead, head, ends[count].job)
    return count


@kernel
def _go_on(state: EngineState, ahead: ReservationProjection, head: int, count: int) -> int:
    """Let all ends happen at the instant after the first ``count`` ends; return how many there are then."""
    ends = ahead.next_ends
    us = ends[count].us
    while count < ahead.head[0].next_ends and ends[count].us == us:
        release_cores(state, ahead, head, ends[count].job)
        count += 1
    return count


@kernel
def _ends_before_start(
    state: EngineState, ahead: ReservationProjection, mirror: RowMirror, head: int, job: int
) -> int:
    """Return how many jobs have ended when the rows take ``head``, ``job`` among all others; or ``NEVER``.

    The cluster that is shown is the one at the head's start then. It was that at its start without ``job``,
    which is where to begin: ``head`` fits only for an instant or two before that.
    """
    known, ends = ahead.head[0], ahead.next_ends
    count = known.next_ends
    while count > 0:
        count = _go_back(state, ahead, head, count)
        if known.fitting < state.jobs[head].nodes:
            count = _go_on(state, ahead, head, count)
            break
    show_rows(state, mirror)
    enter_row(state, mirror.rows, job)
    while True:
        due = count == 0 and known.next_ends > 0 and ends[0].us == state.clock[0].now_us
        if not due and take_head(state, mirror, ends, count, head, known.fitting):
            return count
        if count == known.next_ends:
            return NEVER
        count = _go_on(state, ahead, head, count)


@kernel
def _accept(ahead: ReservationProjection, count: int) -> None:
    """Let the trial be the base, up to the first ``count`` ends of it."""
    known = ahead.head[0]
    for place in range(known.members):
        member = ahead.group[place].job
        ahead.base.runs[member].busy = ahead.trial.runs[member].busy
    for place in range(count):
        _set_end(ahead.ends, place, ahead.next_ends, place)
    for place in range(count, known.next_ends):
        ahead.base.runs[ahead.next_ends[place].job].busy = 1
    known.ends = count


@kernel
def _rows_delay(
    state: EngineState, ahead: ReservationProjection, mirror: RowMirror | None, head: int, job: int
) -> bool:
    """Return whether rows delay ``head``, which fits otherwise; if not, bring the base up to date."""
    _merge_ends(ahead)
    if mirror is None:
        _accept(ahead, ahead.head[0].next_ends)
        return False
    count = _ends_before_start(state, ahead, mirror, head, job)
    if count == NEVER:
        return True
    ahead.head[0].start_us = state.clock[0].now_us if count == 0 else ahead.next_ends[count - 1].us
    _accept(ahead, count)
    return False


@kernel
def delays_head(
    state: EngineState, ahead: ReservationProjection, mirror: RowMirror | None, head: int, job: int
) -> bool:
    """Return whether ``head`` would start later because ``job``, which has its pieces, starts now.

    If not, the base projection is brought up to date with ``job``.
    """
    known = ahead.head[0]
    ahead.base.runs[job].busy = 0
    _gather_group(state, ahead, state.links, job)
    _project_group(state, ahead, job)
    for place in range(known.members):
        if _is_late(ahead, ahead.group[place].job):
            occupy_cores(state, ahead, head, ahead.group[place].job)
    delayed = known.fitting < state.jobs[head].nodes or _rows_delay(state, ahead, mirror, head, job)
    if delayed:
        for place in range(known.members):
            if _is_late(ahead, ahead.group[place].job):
                release_cores(state, ahead, head, ahead.group[place].job)
    _forget_group(ahead)
    return delayed
