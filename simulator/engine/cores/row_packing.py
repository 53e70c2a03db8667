"""Packing Slurm's rows anew, as far as something has changed.

Who gets which row hangs on two things: in which rows earlier jobs hold some of the cores (``blocked``), and
the order of the rows when it is a job's turn. Both are kept from one attempt to the next: a job that comes,
leaves, or gets another row tells those that have cores in common with it. So an attempt begins where
something has changed, and goes on with sizes and order only. If nothing has changed up to the job that found
no row in the attempt before, it finds none now.

A block of jobs for which nothing has changed is left out if the order of the rows is what it was and stays
so: if no row comes as close to the one before it as to pass it.

All rows are empty when an attempt begins, so what they were called before does not matter: it begins with
their numbers in order.
"""

from __future__ import annotations

from simulator.engine.cores.row_cores import change_cells
from simulator.engine.cores.row_turns import BLOCK, NOWHERE, block_row, tidy, unblock_row
from simulator.engine.kernels.compilation import kernel
from simulator.engine.kernels.field_records import IntegerRow
from simulator.engine.state.engine_state import NEVER, EngineState
from simulator.engine.state.sharing_state import Links, Rows


@kernel
def tell_later(links: Links, rows: Rows, job: int, before: int, after: int) -> None:
    """Tell those who come after ``job``, and have cores in common with it, that it gets another row."""
    record = links.of[job].first
    while record != NEVER:
        guest = links.records[record].job
        if rows.jobs[guest].at > rows.jobs[job].at:
            unblock_row(rows, guest, before)
            block_row(rows, guest, after)
        record = links.records[record].after


@kernel
def ask_earlier(links: Links, rows: Rows, job: int) -> None:
    """Find the rows that are blocked for ``job``, which has just got its turn."""
    rows.jobs[job].blocked = 0
    for row in range(len(rows.order)):
        rows.blocking[job, row] = 0
    record = links.of[job].first
    while record != NEVER:
        guest = rows.jobs[links.records[record].job]
        if 0 <= guest.at < rows.jobs[job].at:
            block_row(rows, job, guest.next_row)
        record = links.records[record].after


@kernel
def first_open(order: IntegerRow, blocked: int) -> int:
    """Return the place of the first row in ``order`` that is not blocked; if all are, that after the last."""
    rank = 0
    while rank < len(order) and blocked >> order[rank] & 1:
        rank += 1
    return rank


@kernel
def _grow(rows: Rows, index: int, rank: int, size: int) -> None:
    """Let the row at ``rank`` grow, sort the rows as ``sort_rows`` does, and note how near they came."""
    order, sizes = rows.next_order, rows.next_size
    sizes[order[rank]] += size
    if rank == 0:
        return
    lead = sizes[order[rank - 1]] - sizes[order[rank]]
    rows.leads[index, rank] = min(rows.leads[index, rank], lead)
    if lead >= 0:
        return
    rows.blocks[index].calm = 0
    for place in range(rank):
        if sizes[order[rank]] > sizes[order[place]]:
            order[place], order[rank] = order[rank], order[place]


@kernel
def _give_row(links: Links, rows: Rows, job: int, row: int) -> None:
    """Note that ``job`` gets another row than in the attempt before."""
    packing, entry = rows.packing[0], rows.jobs[job]
    packing.differing += int(row != entry.row) - int(entry.next_row != entry.row)
    packing.differs_from = min(packing.differs_from, entry.at)
    tell_later(links, rows, job, entry.next_row, row)
    entry.next_row = row


@kernel
def _rewind(rows: Rows, block: int) -> None:
    """Go back to sizes and order as they are when it is the turn of the first job of ``block``."""
    slots = len(rows.order)
    for row in range(slots):
        rows.next_size[row] = rows.starts[block, row] if block > 0 else 0
        rows.next_order[row] = rows.starts[block, slots + row] if block > 0 else row


@kernel
def _set_start(rows: Rows, block: int) -> None:
    slots = len(rows.order)
    for row in range(slots):
        rows.starts[block, row] = rows.next_size[row]
        rows.starts[block, slots + row] = rows.next_order[row]
        rows.leads[block, row] = NOWHERE
    rows.blocks[block].calm = 1


@kernel
def _pack_block(links: Links, rows: Rows, block: int) -> int:
    """Give each job of a block the first row in which it fits; return the place of one that finds none."""
    _set_start(rows, block)
    for place in range(block * BLOCK, min((block + 1) * BLOCK, rows.packing[0].length)):
        job = rows.turns[place]
        if job == NEVER:
            continue
        entry = rows.jobs[job]
        rank = first_open(rows.next_order, entry.blocked)
        if rank == len(rows.next_order):
            rows.blocks[block].dirty = 1
            return place
        if rows.next_order[rank] != entry.next_row:
            _give_row(links, rows, job, rows.next_order[rank])
        _grow(rows, block, rank, entry.size)
    for row in range(len(rows.order)):
        rows.growth[block, row] = rows.next_size[row] - rows.starts[block, row]
    rows.blocks[block].dirty = 0
    return NEVER


@kernel
def _lead(rows: Rows, block: int, rank: int) -> int:
    """Return by how much the row at ``rank`` stays behind the one before it, at least, in a calm block."""
    ahead, row = rows.next_order[rank - 1], rows.next_order[rank]
    more_ahead = rows.next_size[ahead] - rows.starts[block, ahead]
    return rows.leads[block, rank] + more_ahead - (rows.next_size[row] - rows.starts[block, row])


@kernel
def _is_as_before(rows: Rows, block: int) -> bool:
    """Return whether each job of a block gets the row that it had in the attempt before."""
    if rows.blocks[block].dirty or not rows.blocks[block].calm:
        return False
    slots = len(rows.order)
    for rank in range(slots):
        if rows.next_order[rank] != rows.starts[block, slots + rank]:
            return False
        if rank > 0 and _lead(rows, block, rank) < 0:
            return False
    return True


@kernel
def _pass_over(rows: Rows, block: int) -> None:
    """Go to the end of a block that is as before."""
    for rank in range(1, len(rows.order)):
        rows.leads[block, rank] = _lead(rows, block, rank)
    for row in range(len(rows.order)):
        rows.starts[block, row] = rows.next_size[row]
        rows.next_size[row] += rows.growth[block, row]


@kernel
def _all_fit(links: Links, rows: Rows) -> bool:
    """Give each job the first row in which it fits when it is its turn; return whether each found one."""
    packing = rows.packing[0]
    if packing.failed_at != NEVER and packing.changed > packing.failed_at:
        return False
    first = packing.changed // BLOCK
    packing.changed = NOWHERE
    _rewind(rows, first)
    for block in range(first, packing.length // BLOCK + 1):
        if _is_as_before(rows, block):
            _pass_over(rows, block)
            continue
        packing.failed_at = _pack_block(links, rows, block)
        if packing.failed_at != NEVER:
            return False
    packing.failed_at = NEVER
    return True


@kernel
def _move_in(state: EngineState, rows: Rows) -> None:
    """Let every job be in the row that it was given."""
    packing = rows.packing[0]
    packing.untidy = int(packing.differing > 0)
    for rank in range(len(rows.order)):
        packing.untidy |= int(rows.order[rank] != rows.next_order[rank])
        rows.order[rank] = rows.next_order[rank]
        rows.size[rank] = rows.next_size[rank]
    place = packing.differs_from
    while packing.differing > 0:
        job = rows.turns[place]
        if job != NEVER and rows.jobs[job].row != rows.jobs[job].next_row:
            _move(state, rows, job)
            packing.differing -= 1
        place += 1
    packing.differs_from = NOWHERE


@kernel
def _move(state: EngineState, rows: Rows, job: int) -> None:
    entry = rows.jobs[job]
    if entry.row != NEVER:
        change_cells(state, rows, entry.row, job)
    change_cells(state, rows, entry.next_row, job)
    entry.row = entry.next_row


@kernel
def make_rows(state: EngineState, links: Links, rows: Rows) -> None:
    """Pack the jobs into rows anew, or leave all where they are."""
    tidy(rows)
    if _all_fit(links, rows):
        _move_in(state, rows)
