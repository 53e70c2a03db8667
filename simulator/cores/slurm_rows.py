"""Slurm's rows: layers of jobs that overlap with no other job of their layer.

A partition with ``OverSubscribe=FORCE:M`` has M rows. A job that starts goes to the first row in which its
cores are free. When a job ends, all rows are made anew: the jobs, by first core and then by size, go to the
first row in which they fit, and after each of them the rows are sorted, fullest first. If a job finds no row,
all stay where they were (``packing``).

Source: Slurm 22.05, ``src/plugins/select/cons_common``: ``job_res_add_job``, ``part_data_build_row_bitmaps``,
``part_data_sort_res``. Two jobs of a row have no core in common, so jobs with the same first core are in
different rows, and the order of the rows is all that their order can depend on.

A job that a policy puts on cores of its choice may fit in no row, although each of its cores has a free slot.
It is in none until the rows are made anew and it fits.
"""

from __future__ import annotations

from simulator.cores.core_slots import change_cells
from simulator.cores.node_classes import first_node
from simulator.cores.row_packing import (
    BLOCK,
    ask_earlier,
    drop_out,
    first_open,
    make_rows,
    queue_up,
    tell_later,
)
from simulator.jit.compilation import kernel
from simulator.jit.field_records import IntegerGrid, StateAllocator
from simulator.state.engine_state import (
    NEVER,
    BlockRecord,
    EngineState,
    Links,
    PackedRecord,
    PackingRecord,
    Rows,
)
from simulator.state.node_sets import WORD_BITS, bit_index


def new_rows(
    make: StateAllocator, jobs: int, most: int, slots: int, cells: IntegerGrid, taken: IntegerGrid
) -> Rows:
    """Return empty rows for so many jobs, of which ``most`` can run at once."""
    places = 2 * most + BLOCK
    blocks = places // BLOCK + 1
    return Rows(
        cells=cells,
        taken=taken,
        size=make.zeros(slots),
        order=make.row(range(slots)),
        jobs=make.table(PackedRecord, jobs),
        blocking=make.grid(jobs, slots, short=True),
        packing=make.table(PackingRecord, 1),
        turns=make.row([NEVER] * places),
        blocks=make.table(BlockRecord, blocks),
        starts=make.grid(blocks, 2 * slots),
        leads=make.grid(blocks, slots),
        growth=make.grid(blocks, slots),
        next_size=make.zeros(slots),
        next_order=make.zeros(slots),
    )


@kernel
def sort_rows(rows: Rows) -> None:
    """Order the rows by size, fullest first, with Slurm's exchanges (which decide between equals)."""
    order, size = rows.order, rows.size
    for first in range(len(order)):
        for second in range(first + 1, len(order)):
            if size[order[second]] > size[order[first]]:
                order[first], order[second] = order[second], order[first]
                rows.packing[0].untidy = 1


@kernel
def _first_core(state: EngineState, job: int) -> int:
    piece = state.jobs[job].pieces
    word = 0
    while state.piece_cores[piece, word] == 0:
        word += 1
    bits = state.piece_cores[piece, word]
    node = first_node(state, state.pieces[piece].node_class)
    return (node * state.piece_cores.shape[1] + word) * WORD_BITS + bit_index(bits & -bits)


@kernel
def _first_row(links: Links, rows: Rows, job: int) -> int:
    """Return the first row, in their order, in which no job holds a core of ``job``, or ``NEVER``."""
    blocked = 0
    record = links.of[job].first
    while record != NEVER:
        guest = rows.jobs[links.records[record].job]
        if guest.at != NEVER and guest.row != NEVER:
            blocked |= 1 << guest.row
        record = links.records[record].after
    rank = first_open(rows.order, blocked)
    return rows.order[rank] if rank < len(rows.order) else NEVER


@kernel
def enter(state: EngineState, links: Links, rows: Rows, job: int) -> None:
    """Note the row of ``job``, which has just taken its cores."""
    entry = rows.jobs[job]
    entry.first_core = _first_core(state, job)
    entry.size = state.jobs[job].nodes * state.jobs[job].cores
    entry.row = _first_row(links, rows, job)
    entry.next_row = NEVER
    if entry.row != NEVER:
        rows.size[entry.row] += entry.size
        rows.packing[0].differing += 1
        change_cells(state, rows, entry.row, job)
    queue_up(rows, job)
    ask_earlier(links, rows, job)


@kernel
def leave(state: EngineState, links: Links, rows: Rows, job: int) -> None:
    """Make the rows anew without ``job``, which is about to give back its cores."""
    packing, entry = rows.packing[0], rows.jobs[job]
    tell_later(links, rows, job, entry.next_row, NEVER)
    if entry.row != NEVER:
        rows.size[entry.row] -= entry.size
        change_cells(state, rows, entry.row, job)
    packing.differing -= int(entry.next_row != entry.row)
    drop_out(rows, job)
    make_rows(state, links, rows)


@kernel
def _enter(state: EngineState, links: Links | None, rows: Rows, job: int) -> None:
    if links is not None:
        enter(state, links, rows, job)


@kernel
def enter_row(state: EngineState, rows: Rows | None, job: int) -> None:
    """Note the row of ``job``, which has just taken its cores; where rows are kept."""
    if rows is not None:
        _enter(state, state.links, rows, job)


@kernel
def _leave(state: EngineState, links: Links | None, rows: Rows, job: int) -> None:
    if links is not None:
        leave(state, links, rows, job)


@kernel
def leave_row(state: EngineState, rows: Rows | None, job: int) -> None:
    """Make the rows anew without ``job``, which is about to give back its cores; where rows are kept."""
    if rows is not None:
        _leave(state, state.links, rows, job)
