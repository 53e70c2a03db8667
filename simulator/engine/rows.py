"""Slurm's rows: layers of jobs that overlap with no other job of their layer.

A partition with ``OverSubscribe=FORCE:M`` has M rows. A job that starts goes to the first row in which its
cores are free. When a job ends, all rows are made anew: the jobs, by first core and then by size, go to the
first row in which they fit, and after each of them the rows are sorted, fullest first. If a job finds no row,
all stay where they were.

Source: Slurm 22.05, ``src/plugins/select/cons_common``: ``job_res_add_job``, ``part_data_build_row_bitmaps``,
``part_data_sort_res``. Two jobs of a row have no core in common, so jobs with the same first core are in
different rows, and the order of the rows is all that their order can depend on.
"""

from __future__ import annotations

from simulator.engine.bits import WORD_BITS, bit_index
from simulator.engine.compile import kernel, kernel_apart
from simulator.engine.state import ACTIVE, BY_CORE, CORES, NEVER, NEW_ROW, NODE, NODES, PART_AT, ROW, State


@kernel_apart
def sort_rows(state: State) -> None:
    """Order the rows by size, fullest first, with Slurm's exchanges (which decide between equals)."""
    order, size = state.row_order, state.row_size
    for first in range(len(order)):
        for second in range(first + 1, len(order)):
            if size[order[second]] > size[order[first]]:
                order[first], order[second] = order[second], order[first]


@kernel
def _fits_row(state: State, row: int, job: int) -> bool:
    for part in range(state.jobs[PART_AT, job], state.jobs[PART_AT, job + 1]):
        for word in range(state.mask.shape[1]):
            if state.rows[row, state.parts[NODE, part], word] & state.mask[part, word]:
                return False
    return True


@kernel
def _change_row(state: State, row: int, job: int, sign: int) -> None:
    """Put the cores of ``job`` into ``row`` (1), or take them out (-1)."""
    for part in range(state.jobs[PART_AT, job], state.jobs[PART_AT, job + 1]):
        for word in range(state.mask.shape[1]):
            state.rows[row, state.parts[NODE, part], word] ^= state.mask[part, word]
    state.row_size[row] += sign * state.jobs[NODES, job] * state.jobs[CORES, job]


@kernel
def _first_row(state: State, job: int) -> int:
    """Return the first row, in their order, in which the cores of ``job`` are free, or ``NEVER``."""
    for place in range(len(state.row_order)):
        row: int = state.row_order[place]
        if _fits_row(state, row, job):
            return row
    return NEVER


@kernel
def _first_core(state: State, job: int) -> int:
    part = state.jobs[PART_AT, job]
    word = 0
    while state.mask[part, word] == 0:
        word += 1
    bits = state.mask[part, word]
    words = state.mask.shape[1]
    core: int = (state.parts[NODE, part] * words + word) * WORD_BITS + bit_index(bits & -bits)
    return core


@kernel
def _precedes(state: State, a: int, b: int) -> bool:
    """Return whether ``a`` comes before ``b`` when the rows are made anew."""
    first_a, first_b = _first_core(state, a), _first_core(state, b)
    if first_a != first_b:
        return bool(first_a < first_b)
    size_a = state.jobs[NODES, a] * state.jobs[CORES, a]
    size_b = state.jobs[NODES, b] * state.jobs[CORES, b]
    return bool(size_a < size_b)


@kernel
def has_rows(state: State) -> bool:
    """Return whether rows are kept: they are where Slurm's placement shares cores."""
    return bool(state.rows.shape[0] > 0)


@kernel_apart
def enter_row(state: State, job: int) -> None:
    """Note the row of ``job``, which starts and holds its cores already."""
    row = _first_row(state, job)
    state.run[ROW, job] = row
    _change_row(state, row, job, 1)
    listed = state.run[BY_CORE]
    place = state.clock[ACTIVE] - 1
    while place > 0 and _precedes(state, job, listed[place - 1]):
        listed[place] = listed[place - 1]
        place -= 1
    listed[place] = job


@kernel
def _rank_of(state: State, row: int) -> int:
    rank = 0
    while state.row_order[rank] != row:
        rank += 1
    return rank


@kernel
def _order_equals(state: State, count: int) -> None:
    """Put jobs of the same first core and size in the order of their rows."""
    listed = state.run[BY_CORE]
    for right in range(1, count):
        job = listed[right]
        place = right
        while (
            place > 0
            and not _precedes(state, listed[place - 1], job)
            and _rank_of(state, state.run[ROW, listed[place - 1]]) > _rank_of(state, state.run[ROW, job])
        ):
            listed[place] = listed[place - 1]
            place -= 1
        listed[place] = job


@kernel_apart
def leave_row(state: State, job: int) -> None:
    """Make the rows anew without ``job``, which has ended and is no longer counted as running."""
    listed = state.run[BY_CORE]
    count = state.clock[ACTIVE]
    place = 0
    while listed[place] != job:
        place += 1
    for later in range(place, count):
        listed[later] = listed[later + 1]
    _change_row(state, state.run[ROW, job], job, -1)
    _order_equals(state, count)
    _pack_rows(state, count)


@kernel
def _pack_rows(state: State, count: int) -> None:
    """Put the listed jobs into the first row in which each fits, or leave all where they are."""
    listed = state.run[BY_CORE]
    for place in range(count):
        _change_row(state, state.run[ROW, listed[place]], listed[place], -1)
    order = state.row_order
    kept = state.row_kept
    for place in range(len(order)):
        kept[place] = order[place]
    packed = 0
    while packed < count:
        job = listed[packed]
        row = _first_row(state, job)
        if row == NEVER:
            break
        state.run[NEW_ROW, job] = row
        _change_row(state, row, job, 1)
        sort_rows(state)
        packed += 1
    if packed == count:
        for place in range(count):
            state.run[ROW, listed[place]] = state.run[NEW_ROW, listed[place]]
        return
    for place in range(packed):
        _change_row(state, state.run[NEW_ROW, listed[place]], listed[place], -1)
    for place in range(count):
        _change_row(state, state.run[ROW, listed[place]], listed[place], 1)
    for place in range(len(order)):
        order[place] = kept[place]
