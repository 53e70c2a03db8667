"""Slurm's rows in a projection: packed anew after each of its ends, and asked whether they take the head.

Rows have no effect before the head fits on enough nodes, so they are followed no sooner. What they
are then hangs on all ends up to then, in their order.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.cores.node_fitting import fits
from simulator.cores.row_packing import BLOCK
from simulator.cores.slurm_rows import leave_row, new_rows, sort_rows
from simulator.jit.compilation import kernel
from simulator.jit.field_records import IntegerGrid, IntegerRow, RecordTable, StateAllocator
from simulator.policies.easy.reservation_projection import ReservationProjection
from simulator.policies.easy.shadow import EndRecord
from simulator.state.engine_state import NEVER, EngineState, Rows
from simulator.state.node_sets import count_bits


class RowMirror(NamedTuple):
    """Rows that are not the real ones.

    They have followed the first ``past[0]`` ends. ``used[r, w]`` are the cores of a node in row ``r``,
    ``fitting[r]`` is how many nodes suit the head there; both are scratch.
    """

    rows: Rows
    past: IntegerRow
    used: IntegerGrid
    fitting: IntegerRow


def new_mirror(make: StateAllocator, state: EngineState) -> RowMirror:
    """Return a mirror that shows nothing yet."""
    assert state.rows is not None
    jobs, most = len(state.rows.jobs), (len(state.rows.turns) - BLOCK) // 2
    _, slots, words = state.occupied.shape
    return RowMirror(
        rows=new_rows(make, jobs, most, slots, make.grid(0, 0, 0), make.grid(0, 0)),
        past=make.zeros(1),
        used=make.grid(slots, words),
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
    image.first_core = entry.first_core
    image.size = entry.size
    image.at = entry.at
    image.row = entry.row
    image.next_row = entry.next_row
    image.blocked = entry.blocked
    for row in range(len(rows.order)):
        shown.blocking[job, row] = rows.blocking[job, row]


@kernel
def _show_rows(rows: Rows | None, shown: Rows) -> None:
    """Show the rows as they are."""
    if rows is None:
        return
    for place in range(shown.packing[0].length):
        if shown.turns[place] != NEVER:
            shown.jobs[shown.turns[place]].at = NEVER
    _copy_packing(rows, shown)
    _copy_blocks(rows, shown)
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
        _show_rows(state.rows, mirror.rows)
        mirror.past[0] = 0


@kernel
def _count_fitting(
    state: EngineState, ahead: ReservationProjection, mirror: RowMirror, node: int, cores: int
) -> int:
    """Count ``node`` for every row in which it has so many cores free; return the most nodes of a row."""
    used, slots = mirror.used, state.rules[0].slots
    for row in range(slots):
        for word in range(used.shape[1]):
            used[row, word] = ahead.base_stack[node, slots - 1, word]
    for place in range(state.nodes[node].listed):
        part = state.listed[node, place]
        entry = mirror.rows.jobs[state.parts[part].job]
        if entry.at != NEVER and entry.row != NEVER:
            for word in range(used.shape[1]):
                used[entry.row, word] |= state.mask[part, word]
    most = 0
    for row in range(slots):
        spare = 0
        for word in range(used.shape[1]):
            spare += count_bits(state.valid[word] & ~used[row, word])
        mirror.fitting[row] += int(spare >= cores)
        most = max(most, mirror.fitting[row])
    return most


@kernel
def _takes(state: EngineState, ahead: ReservationProjection, mirror: RowMirror, head: int) -> bool:
    """Return whether enough nodes suit ``head`` in some row; where it finds idle cores, it does in any."""
    asked = state.jobs[head]
    for row in range(len(mirror.fitting)):
        mirror.fitting[row] = 0
    for node in range(state.rules[0].nodes):
        if (
            fits(asked, ahead.nodes_then[node])
            and _count_fitting(state, ahead, mirror, node, asked.cores) == asked.nodes
        ):
            return True
    sort_rows(mirror.rows)
    return False


@kernel
def take_head(
    state: EngineState,
    ahead: ReservationProjection,
    mirror: RowMirror | None,
    ends: RecordTable[EndRecord],
    count: int,
    head: int,
) -> bool:
    """Return whether the rows take ``head`` after the first ``count`` ends; without rows, free slots do."""
    if mirror is None:
        return True
    while mirror.past[0] < count:
        leave_row(state, mirror.rows, ends[mirror.past[0]].job)
        mirror.past[0] += 1
    return _takes(state, ahead, mirror, head)
