"""Slurm packs running jobs into rows: in which order, and anew as far as something has changed.

The order in which Slurm packs running jobs into rows: by first core, then by size, then by row.

It is an array with gaps, so that a job that comes or goes moves few others, and the array is cut into blocks,
so that packing can leave out those in which nothing has changed (``packing``). Jobs with equal turns, which
have their first core in common, are in the order of their rows when packing begins.

Packing Slurm's rows anew, as far as something has changed.

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

from simulator.cores.core_slots import change_cells
from simulator.jit.compilation import kernel
from simulator.jit.field_records import IntegerRow
from simulator.state.engine_state import NEVER, EngineState, Links, PackedRecord, Rows

BLOCK = 32
"""How many places a block has, and how far off a gap may be that a job can use."""

NOWHERE = 1 << 60
"""A place after all others."""


@kernel
def precedes(a: PackedRecord, b: PackedRecord) -> bool:
    """Return whether the turn of ``a`` comes before that of ``b``."""
    if a.first_core != b.first_core:
        return a.first_core < b.first_core
    return a.size < b.size


@kernel
def rank_of(rows: Rows, row: int) -> int:
    """Return the place of ``row`` in the order of the rows; for no row, that after the last."""
    rank = 0
    while rank < len(rows.order) and rows.order[rank] != row:
        rank += 1
    return rank


@kernel
def touch(rows: Rows, place: int) -> None:
    """Note that another job is at ``place``, or none."""
    packing, block = rows.packing[0], rows.blocks[place // BLOCK]
    block.dirty = 1
    block.tied = 1
    packing.changed = min(packing.changed, place)
    packing.differs_from = min(packing.differs_from, place)


@kernel
def _put(rows: Rows, job: int, place: int) -> None:
    rows.turns[place] = job
    rows.jobs[job].at = place


@kernel
def _find(rows: Rows, job: int) -> int:
    """Return the first place that is behind all jobs whose turn is not after that of ``job``."""
    turns, jobs = rows.turns, rows.jobs
    low = 0
    high = rows.packing[0].length
    while low < high:
        middle = (low + high) // 2
        place = middle
        while place < high and turns[place] == NEVER:
            place += 1
        if place == high or precedes(jobs[job], jobs[turns[place]]):
            high = middle
        else:
            low = place + 1
    return low


@kernel
def _spread(rows: Rows) -> None:
    """Leave a gap behind each job."""
    packing, turns = rows.packing[0], rows.turns
    count = 0
    for place in range(packing.length):
        if turns[place] != NEVER:
            turns[count] = turns[place]
            count += 1
    for place in range(count - 1, -1, -1):
        _put(rows, turns[place], 2 * place)
        turns[2 * place + 1] = NEVER
    for place in range(2 * count, packing.length):
        turns[place] = NEVER
    packing.length = 2 * count
    for place in range(0, packing.length + 1, BLOCK):
        touch(rows, place)


@kernel
def _open_gap(rows: Rows, job: int) -> int:
    """Return a gap where it is the turn of ``job``, having moved a few others; ``NEVER`` if none is near."""
    packing, turns = rows.packing[0], rows.turns
    place = _find(rows, job)
    right = place
    while right < packing.length and turns[right] != NEVER and right < place + BLOCK:
        right += 1
    left = place - 1
    while left >= 0 and turns[left] != NEVER and left > place - BLOCK:
        left -= 1
    if left >= 0 and turns[left] == NEVER and place - left <= right - place:
        for gap in range(left, place - 1):
            _put(rows, turns[gap + 1], gap)
        touch(rows, left)
        return place - 1
    if right == packing.length and right < len(turns):
        turns[right] = NEVER
        packing.length += 1
    if right == packing.length or turns[right] != NEVER:
        return NEVER
    for gap in range(right, place, -1):
        _put(rows, turns[gap - 1], gap)
    touch(rows, right)
    return place


@kernel
def queue_up(rows: Rows, job: int) -> None:
    """Give ``job`` its place, behind all whose turn is not after its own."""
    packing = rows.packing[0]
    if packing.length > 4 * packing.count + BLOCK:
        _spread(rows)
    place = _open_gap(rows, job)
    while place == NEVER:
        _spread(rows)
        place = _open_gap(rows, job)
    _put(rows, job, place)
    packing.count += 1
    touch(rows, place)
    _check_turn(rows, place)


@kernel
def drop_out(rows: Rows, job: int) -> None:
    """Take ``job`` out of the order."""
    place = rows.jobs[job].at
    rows.turns[place] = NEVER
    rows.jobs[job].at = NEVER
    rows.packing[0].count -= 1
    touch(rows, place)


@kernel
def _before(rows: Rows, place: int) -> int:
    """Return the last place before ``place`` at which a job is, or ``NEVER``."""
    place -= 1
    while place >= 0 and rows.turns[place] == NEVER:
        place -= 1
    return place


@kernel
def _is_tied(rows: Rows, before: int, place: int) -> bool:
    """Return whether it is the turn of the jobs at two places, of which none is between, at once."""
    return before != NEVER and not precedes(rows.jobs[rows.turns[before]], rows.jobs[rows.turns[place]])


@kernel
def _check_turn(rows: Rows, place: int) -> None:
    """Note whether the job at ``place`` may have to go before one with an equal turn."""
    before = _before(rows, place)
    if not _is_tied(rows, before, place):
        return
    row, other = rows.jobs[rows.turns[place]].row, rows.jobs[rows.turns[before]].row
    if rank_of(rows, other) > rank_of(rows, row):
        rows.packing[0].untidy = 1


@kernel
def block_row(rows: Rows, job: int, row: int) -> None:
    """Note that one more of those before ``job`` blocks ``row`` for it."""
    if row == NEVER:
        return
    rows.blocking[job, row] += 1
    if rows.blocking[job, row] == 1:
        _flip(rows, job, row)


@kernel
def unblock_row(rows: Rows, job: int, row: int) -> None:
    """Note that one less of those before ``job`` blocks ``row`` for it."""
    if row == NEVER:
        return
    rows.blocking[job, row] -= 1
    if rows.blocking[job, row] == 0:
        _flip(rows, job, row)


@kernel
def _flip(rows: Rows, job: int, row: int) -> None:
    rows.jobs[job].blocked ^= 1 << row
    rows.blocks[rows.jobs[job].at // BLOCK].dirty = 1


@kernel
def _swap(rows: Rows, job: int, other: int) -> None:
    """Let ``job``, whose first core is that of ``other``, no longer come after it but before."""
    unblock_row(rows, job, rows.jobs[other].next_row)
    block_row(rows, other, rows.jobs[job].next_row)


@kernel
def _move_ahead(rows: Rows, place: int) -> None:
    """Let the job at ``place`` go before those with an equal turn whose rows come later."""
    turns, jobs = rows.turns, rows.jobs
    job = turns[place]
    rank = rank_of(rows, jobs[job].row)
    before = _before(rows, place)
    while (
        before != NEVER
        and not precedes(jobs[turns[before]], jobs[job])
        and rank_of(rows, jobs[turns[before]].row) > rank
    ):
        _swap(rows, job, turns[before])
        _put(rows, turns[before], place)
        touch(rows, place)
        place = before
        before = _before(rows, place)
    if jobs[job].at != place:
        _put(rows, job, place)
        touch(rows, place)


@kernel
def _tidy_block(rows: Rows, block: int) -> None:
    tied = 0
    before = _before(rows, block * BLOCK)
    for place in range(block * BLOCK, min((block + 1) * BLOCK, rows.packing[0].length)):
        if rows.turns[place] == NEVER:
            continue
        if _is_tied(rows, before, place):
            tied = 1
            _move_ahead(rows, place)
        before = place
    rows.blocks[block].tied = tied


@kernel
def tidy(rows: Rows) -> None:
    """Put jobs with equal turns in the order of their rows."""
    packing = rows.packing[0]
    if not packing.untidy:
        return
    packing.untidy = 0
    for block in range(packing.length // BLOCK + 1):
        if rows.blocks[block].tied:
            _tidy_block(rows, block)


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
