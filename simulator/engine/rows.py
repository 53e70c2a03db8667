"""Slurm's rows: layers of jobs that overlap with no other job of their layer.

A partition with ``OverSubscribe=FORCE:M`` has M rows. A job that starts goes to the first row in which its
cores are free. When a job ends, all rows are made anew: the jobs, by first core and then by size, go to the
first row in which they fit, and after each of them the rows are sorted, fullest first. If a job finds no row,
all stay where they were.

Source: Slurm 22.05, ``src/plugins/select/cons_common``: ``job_res_add_job``, ``part_data_build_row_bitmaps``,
``part_data_sort_res``. Two jobs of a row have no core in common, so jobs with the same first core are in
different rows, and the order of the rows is all that their order can depend on.

A job that a policy puts on cores of its choice may fit in no row, although each of its cores has a free slot.
It is in none until the rows are made anew and it fits.
"""

from __future__ import annotations

from simulator.engine.bits import WORD_BITS, bit_index
from simulator.engine.compile import kernel
from simulator.engine.state import NEVER, Rows, State


@kernel
def sort_rows(rows: Rows) -> None:
    """Order the rows by size, fullest first, with Slurm's exchanges (which decide between equals)."""
    order, size = rows.order, rows.size
    for first in range(len(order)):
        for second in range(first + 1, len(order)):
            if size[order[second]] > size[order[first]]:
                order[first], order[second] = order[second], order[first]


@kernel
def _fits_row(state: State, rows: Rows, row: int, job: int) -> bool:
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        node = state.parts[part].node
        for word in range(state.mask.shape[1]):
            if rows.cells[row, node, word] & state.mask[part, word]:
                return False
    return True


@kernel
def _change_row(state: State, rows: Rows, row: int, job: int, sign: int) -> None:
    """Put the cores of ``job`` into ``row`` (1), or take them out (-1); nothing if it is in no row."""
    if row == NEVER:
        return
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        node = state.parts[part].node
        for word in range(state.mask.shape[1]):
            rows.cells[row, node, word] ^= state.mask[part, word]
    rows.size[row] += sign * _size(state, job)


@kernel
def _first_row(state: State, rows: Rows, job: int) -> int:
    """Return the first row, in their order, in which the cores of ``job`` are free, or ``NEVER``."""
    for place in range(len(rows.order)):
        row = rows.order[place]
        if _fits_row(state, rows, row, job):
            return row
    return NEVER


@kernel
def _size(state: State, job: int) -> int:
    return state.jobs[job].nodes * state.jobs[job].cores


@kernel
def _first_core(state: State, job: int) -> int:
    part = state.jobs[job].part_at
    word = 0
    while state.mask[part, word] == 0:
        word += 1
    bits = state.mask[part, word]
    return (state.parts[part].node * state.mask.shape[1] + word) * WORD_BITS + bit_index(bits & -bits)


@kernel
def _precedes(state: State, a: int, b: int) -> bool:
    """Return whether ``a`` comes before ``b`` when the rows are made anew."""
    first_a, first_b = state.runs[a].first_core, state.runs[b].first_core
    if first_a != first_b:
        return first_a < first_b
    return _size(state, a) < _size(state, b)


@kernel
def enter_row(state: State, rows: Rows | None, job: int) -> None:
    """Note the row of ``job``, which starts and holds its cores already; where rows are kept."""
    if rows is None:
        return
    row = _first_row(state, rows, job)
    state.runs[job].row = row
    state.runs[job].first_core = _first_core(state, job)
    _change_row(state, rows, row, job, 1)
    lists = state.lists
    place = state.clock[0].active - 1
    while place > 0 and _precedes(state, job, lists[place - 1].by_core):
        lists[place].by_core = lists[place - 1].by_core
        place -= 1
    lists[place].by_core = job


@kernel
def _rank_of(rows: Rows, row: int) -> int:
    rank = 0
    while rank < len(rows.order) and rows.order[rank] != row:
        rank += 1
    return rank


@kernel
def _order_equals(state: State, rows: Rows, count: int) -> None:
    """Put jobs of the same first core and size in the order of their rows."""
    lists, runs = state.lists, state.runs
    for right in range(1, count):
        job = lists[right].by_core
        place = right
        while (
            place > 0
            and not _precedes(state, lists[place - 1].by_core, job)
            and _rank_of(rows, runs[lists[place - 1].by_core].row) > _rank_of(rows, runs[job].row)
        ):
            lists[place].by_core = lists[place - 1].by_core
            place -= 1
        lists[place].by_core = job


@kernel
def leave_row(state: State, rows: Rows | None, job: int, count: int) -> None:
    """Make the rows anew without ``job``, which has ended; they have ``count`` jobs then."""
    if rows is None:
        return
    lists = state.lists
    place = 0
    while lists[place].by_core != job:
        place += 1
    for later in range(place, count):
        lists[later].by_core = lists[later + 1].by_core
    _change_row(state, rows, state.runs[job].row, job, -1)
    _order_equals(state, rows, count)
    _pack_rows(state, rows, count)


@kernel
def _pack_rows(state: State, rows: Rows, count: int) -> None:
    """Put the listed jobs into the first row in which each fits, or leave all where they are."""
    lists, runs = state.lists, state.runs
    for place in range(count):
        _change_row(state, rows, runs[lists[place].by_core].row, lists[place].by_core, -1)
    order, kept = rows.order, rows.kept
    for place in range(len(order)):
        kept[place] = order[place]
    packed = 0
    while packed < count:
        job = lists[packed].by_core
        row = _first_row(state, rows, job)
        if row == NEVER:
            break
        runs[job].new_row = row
        _change_row(state, rows, row, job, 1)
        sort_rows(rows)
        packed += 1
    if packed == count:
        for place in range(count):
            runs[lists[place].by_core].row = runs[lists[place].by_core].new_row
        return
    for place in range(packed):
        _change_row(state, rows, runs[lists[place].by_core].new_row, lists[place].by_core, -1)
    for place in range(count):
        _change_row(state, rows, runs[lists[place].by_core].row, lists[place].by_core, 1)
    for place in range(len(order)):
        order[place] = kept[place]
