"""The order in which Slurm packs running jobs into rows: by first core, then by size, then by row.

It is an array with gaps, so that a job that comes or goes moves few others, and the array is cut into blocks,
so that packing can leave out those in which nothing has changed (``packing``). Jobs with equal turns, which
have their first core in common, are in the order of their rows when packing begins.
"""

from __future__ import annotations

from simulator.engine.kernels.compilation import kernel
from simulator.engine.state.engine_state import NEVER
from simulator.engine.state.sharing_state import PackedRecord, Rows

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
