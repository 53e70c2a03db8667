"""Packing Slurm's rows anew, from the first job on whose row may be another than in the attempt before.

Who gets which row hangs on two things: in which rows earlier jobs hold some of the cores (``blocked``), and
the order of the rows when it is a job's turn. Both are kept from one attempt to the next. So an attempt
begins where something has changed, goes on with sizes and order only, and looks at cores again where a job
is new, has left, or has another row than before, and at those that have cores in common with such a job. If
nothing has changed up to the job that found no row in the attempt before, it finds none now.

All rows are empty when an attempt begins, so what they were called before does not matter: it begins with
their numbers in order.
"""

from __future__ import annotations

from simulator.engine.compile import kernel
from simulator.engine.records import Row
from simulator.engine.sharing_state import Links, PackedRecord, Rows
from simulator.engine.state import NEVER, State

MARK = 32
"""Every how many jobs sizes and order are kept."""

_NOWHERE = 1 << 60


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
def change_cells(state: State, rows: Rows, row: int, job: int) -> None:
    """Put the cores of ``job`` into ``row``, or take them out, where cells are kept."""
    if rows.cells.shape[0] == 0:
        return
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        for word in range(state.mask.shape[1]):
            rows.cells[row, state.parts[part].node, word] ^= state.mask[part, word]


@kernel
def make_stale(links: Links, rows: Rows, job: int) -> None:
    """Let the jobs that come after ``job`` and have a core in common with it look at cores again."""
    record = links.of[job].first
    while record != NEVER:
        guest = rows.jobs[links.records[record].job]
        if guest.at > rows.jobs[job].at:
            guest.stale = 1
        record = links.records[record].after


@kernel
def _look_at_cores(links: Links, rows: Rows, job: int) -> None:
    """Note in which rows jobs before ``job`` hold some of its cores."""
    entry = rows.jobs[job]
    entry.blocked = 0
    entry.stale = 0
    record = links.of[job].first
    while record != NEVER:
        guest = rows.jobs[links.records[record].job]
        if 0 <= guest.at < entry.at and guest.next_row != NEVER:
            entry.blocked |= 1 << guest.next_row
        record = links.records[record].after


@kernel
def _put_in_turn(rows: Rows, right: int) -> int:
    """Move the job at ``right`` before those with an equal turn whose rows come later; return its place."""
    by_core, jobs = rows.by_core, rows.jobs
    job = by_core[right]
    rank = rank_of(rows, jobs[job].row)
    place = right
    while (
        place > 0
        and not precedes(jobs[by_core[place - 1]], jobs[job])
        and rank_of(rows, jobs[by_core[place - 1]].row) > rank
    ):
        by_core[place] = by_core[place - 1]
        jobs[by_core[place]].at = place
        jobs[by_core[place]].stale = 1
        place -= 1
    if place < right:
        by_core[place] = job
        jobs[job].at = place
        jobs[job].stale = 1
    return place


@kernel
def _tidy(rows: Rows) -> None:
    """Put jobs with equal turns in the order of their rows."""
    packing = rows.packing[0]
    packing.untidy = 0
    for right in range(1, packing.count):
        if precedes(rows.jobs[rows.by_core[right - 1]], rows.jobs[rows.by_core[right]]):
            continue
        place = _put_in_turn(rows, right)
        if place < right:
            packing.changed = min(packing.changed, place)


@kernel
def _rewind(rows: Rows, place: int) -> int:
    """Go back to sizes and order as they were at the last mark up to ``place``; return where that is."""
    slots = len(rows.order)
    mark = place // MARK
    for row in range(slots):
        rows.next_size[row] = rows.marks[mark, row] if mark > 0 else 0
        rows.next_order[row] = rows.marks[mark, slots + row] if mark > 0 else row
    return mark * MARK


@kernel
def _set_mark(rows: Rows, place: int) -> None:
    slots = len(rows.order)
    for row in range(slots):
        rows.marks[place // MARK, row] = rows.next_size[row]
        rows.marks[place // MARK, slots + row] = rows.next_order[row]


@kernel
def first_open(order: Row, blocked: int) -> int:
    """Return the place of the first row in ``order`` that is not blocked; if all are, that after the last."""
    rank = 0
    while rank < len(order) and blocked >> order[rank] & 1:
        rank += 1
    return rank


@kernel
def _grow(rows: Rows, rank: int, size: int) -> None:
    """Let the row at ``rank`` grow, and sort the rows as ``sort_rows`` does."""
    order, sizes = rows.next_order, rows.next_size
    sizes[order[rank]] += size
    for place in range(rank):
        if sizes[order[rank]] > sizes[order[place]]:
            order[place], order[rank] = order[rank], order[place]


@kernel
def _give_row(links: Links, rows: Rows, job: int, row: int) -> None:
    """Note that ``job`` gets another row than in the attempt before."""
    packing, entry = rows.packing[0], rows.jobs[job]
    packing.differing += int(row != entry.row) - int(entry.next_row != entry.row)
    entry.next_row = row
    make_stale(links, rows, job)


@kernel
def _all_fit(links: Links, rows: Rows) -> bool:
    """Give each job the first row in which it fits when it is its turn; return whether each found one."""
    packing, by_core = rows.packing[0], rows.by_core
    begin = packing.changed
    if packing.failed_at != NEVER and begin > packing.failed_at:
        return False
    packing.changed = _NOWHERE
    for place in range(_rewind(rows, begin), packing.count):
        if place % MARK == 0:
            _set_mark(rows, place)
        job = by_core[place]
        entry = rows.jobs[job]
        if entry.stale:
            _look_at_cores(links, rows, job)
        rank = first_open(rows.next_order, entry.blocked)
        if rank == len(rows.next_order):
            packing.failed_at = place
            return False
        if rows.next_order[rank] != entry.next_row:
            _give_row(links, rows, job, rows.next_order[rank])
        _grow(rows, rank, entry.size)
    if packing.count % MARK == 0:
        _set_mark(rows, packing.count)
    packing.failed_at = NEVER
    return True


@kernel
def _move_in(state: State, rows: Rows) -> None:
    """Let every job be in the row that it was given."""
    packing = rows.packing[0]
    packing.untidy = int(packing.differing > 0)
    for rank in range(len(rows.order)):
        packing.untidy |= int(rows.order[rank] != rows.next_order[rank])
        rows.order[rank] = rows.next_order[rank]
        rows.size[rank] = rows.next_size[rank]
    place = 0
    while packing.differing > 0:
        job = rows.by_core[place]
        entry = rows.jobs[job]
        if entry.row != entry.next_row:
            if entry.row != NEVER:
                change_cells(state, rows, entry.row, job)
            change_cells(state, rows, entry.next_row, job)
            entry.row = entry.next_row
            packing.differing -= 1
        place += 1


@kernel
def make_rows(state: State, links: Links, rows: Rows) -> None:
    """Pack the jobs into rows anew, or leave all where they are."""
    if rows.packing[0].untidy:
        _tidy(rows)
    if _all_fit(links, rows):
        _move_in(state, rows)
