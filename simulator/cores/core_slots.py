"""Slots of cores, the cores that Slurm's rows take, and which jobs have cores in common.

Slots of cores: taking, giving back, and the multiplicity that follows.

A stack of core sets per class of nodes (``occupied``, ``busy``): level ``k`` holds the cores with more than
``k`` jobs.
Adding a job to a set of cores, or removing it, is one word operation a level.

The cores of Slurm's rows, class by class: nodes are ranked by how few are taken, idle or in a row.

A core without a free slot is taken in every row. It is in all of them anyway, unless one of its jobs is in
none (``rows``).

Who has a core in common with whom: kept for running jobs where cores have several slots.

A job's cores never change while it holds them, so the pairs are found once, when it takes them; ends, changes
of phase and projections then go along its list.
"""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.jit.field_records import IntegerGrid, StateAllocator
from simulator.state.engine_state import (
    NEVER,
    EngineState,
    LinkedRecord,
    LinkPoolRecord,
    LinkRecord,
    Links,
    Rows,
)
from simulator.state.node_sets import move_node, move_nodes

IDLE = 0
"""Kind of load: cores that are not idle; ``row + 1`` is that of cores that are not free in ``row``."""


@kernel
def taken_cores(state: EngineState, rows: Rows, kind: int, node_class: int, word: int) -> int:
    """Return the cores of a node of a class that are taken, as a set."""
    if kind == IDLE:
        return state.occupied[node_class, 0, word]
    return rows.cells[kind - 1, node_class, word] | state.occupied[node_class, state.rules[0].slots - 1, word]


@kernel
def _move_class(state: EngineState, kind: int, node_class: int, before: int, after: int) -> None:
    """Note that the load of the nodes of a class has changed."""
    one = state.classes[node_class]
    if one.row == NEVER:
        move_node(state.ranking, kind, one.first, before, after)
    else:
        move_nodes(state.ranking, kind, state.sets, one.row, (one.low, one.high), one.nodes, (before, after))


@kernel
def _rank_of_cores(state: EngineState, rows: Rows, kind: int, node_class: int) -> None:
    taken = 0
    for word in range(len(state.valid)):
        taken += taken_cores(state, rows, kind, node_class, word).bit_count()
    before = rows.taken[kind, node_class]
    if taken != before:
        rows.taken[kind, node_class] = taken
        _move_class(state, kind, node_class, before, taken)


@kernel
def rank_by_cores(state: EngineState, rows: Rows, node_class: int, in_rows: bool) -> None:
    """Rank nodes whose slots are others now by idle cores, and in their rows where it is asked for."""
    _rank_of_cores(state, rows, IDLE, node_class)
    if in_rows:
        for row in range(state.rules[0].slots):
            _rank_of_cores(state, rows, row + 1, node_class)


@kernel
def change_cells(state: EngineState, rows: Rows, row: int, job: int) -> None:
    """Put the cores of ``job`` into ``row``, or take them out; a projection has no ranking."""
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        for word in range(state.piece_cores.shape[1]):
            rows.cells[row, held.node_class, word] ^= state.piece_cores[piece, word]
        if rows.taken.shape[0] > 0:
            _rank_of_cores(state, rows, row + 1, held.node_class)
        piece = held.next


@kernel
def add_to_stack(stack: IntegerGrid, held: IntegerGrid, node_class: int, piece: int) -> None:
    """Count one job more on the cores of ``piece``, on the nodes of a class."""
    for word in range(stack.shape[2]):
        cores = held[piece, word]
        if cores == 0:
            continue
        for level in range(stack.shape[1] - 1, 0, -1):
            stack[node_class, level, word] |= stack[node_class, level - 1, word] & cores
        stack[node_class, 0, word] |= cores


@kernel
def remove_from_stack(stack: IntegerGrid, held: IntegerGrid, node_class: int, piece: int) -> None:
    """Count one job less on the cores of ``piece``, on the nodes of a class."""
    top = stack.shape[1] - 1
    for word in range(stack.shape[2]):
        cores = held[piece, word]
        if cores == 0:
            continue
        for level in range(top):
            above = stack[node_class, level + 1, word] & cores
            stack[node_class, level, word] = (stack[node_class, level, word] & ~cores) | above
        stack[node_class, top, word] &= ~cores


@kernel
def piece_multiplicity(stack: IntegerGrid, held: IntegerGrid, node_class: int, piece: int, least: int) -> int:
    """Return the most jobs on a core of ``piece``, or ``least`` if that is more."""
    multiplicity = least
    for word in range(stack.shape[2]):
        cores = held[piece, word]
        while multiplicity < stack.shape[1] and stack[node_class, multiplicity, word] & cores:
            multiplicity += 1
    return multiplicity


@kernel
def cores_at_top(stack: IntegerGrid, held: IntegerGrid, node_class: int, piece: int, cores: int) -> int:
    """Return how many of the ``cores`` cores of ``piece``, a job's, have no free slot."""
    top = stack.shape[1] - 1
    if top == 0:
        return cores
    count = 0
    for word in range(stack.shape[2]):
        count += (stack[node_class, top, word] & held[piece, word]).bit_count()
    return count


@kernel
def overlap(held: IntegerGrid, a: int, b: int) -> bool:
    """Return whether the pieces ``a`` and ``b``, of one class, have a core in common."""
    common = 0
    for word in range(held.shape[1]):
        common |= held[a, word] & held[b, word]
    return common != 0


@kernel
def _rank(state: EngineState, rows: Rows | None, node_class: int, before: int, freed: bool) -> None:
    """Rank nodes of which other slots are occupied now; ``freed``: another number of their cores is free."""
    if rows is None:
        if state.rules[0].nodes > 1:  # an only node needs no ranking
            _move_class(state, 0, node_class, before, state.classes[node_class].used)
        return
    rank_by_cores(state, rows, node_class, freed)


@kernel
def take_slots(state: EngineState, job: int) -> None:
    """Let ``job`` hold the cores of its pieces."""
    cores = state.jobs[job].cores
    memory_kib = state.jobs[job].memory_kib
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        here = state.classes[held.node_class]
        add_to_stack(state.occupied, state.piece_cores, held.node_class, piece)
        before = here.free
        after = before - cores_at_top(state.occupied, state.piece_cores, held.node_class, piece, cores)
        here.free = after
        if here.owner == NEVER:
            for free in range(after + 1, before + 1):
                state.open_nodes[free] -= here.nodes
        here.used += cores
        _rank(state, state.rows, held.node_class, here.used - cores, before != after)
        here.free_kib -= memory_kib
        piece = held.next


@kernel
def free_slots(state: EngineState, job: int) -> None:
    """Let ``job`` hold nothing any more; its pieces and parts still say what it held."""
    cores = state.jobs[job].cores
    memory_kib = state.jobs[job].memory_kib
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        here = state.classes[held.node_class]
        before = here.free
        after = before + cores_at_top(state.occupied, state.piece_cores, held.node_class, piece, cores)
        here.free = after
        if here.owner == NEVER:
            for free in range(before + 1, after + 1):
                state.open_nodes[free] += here.nodes
        remove_from_stack(state.occupied, state.piece_cores, held.node_class, piece)
        here.used -= cores
        _rank(state, state.rows, held.node_class, here.used + cores, before != after)
        here.free_kib += memory_kib
        piece = held.next


def new_links(make: StateAllocator, jobs: int, cores: int, slots: int) -> Links:
    """Return no links, with space for all that so many jobs can have on so many cores at once."""
    pairs = min(jobs * (jobs - 1) // 2, cores * slots * (slots - 1) // 2)
    return Links(
        pool=make.table(LinkPoolRecord, 1),
        records=make.table(LinkRecord, 2 * pairs + 2, lazily=True),
        of=make.table(LinkedRecord, jobs),
    )


@kernel
def _new_pair(links: Links) -> int:
    """Return the first of two unused records."""
    pool = links.pool[0]
    pair = pool.spare
    if pair == NEVER:
        pair = pool.used
        pool.used += 2
    else:
        pool.spare = links.records[pair].after
    return pair


@kernel
def _enter(links: Links, record: int, job: int, other: int) -> None:
    """Put ``record``, which names ``other``, at the front of the list of ``job``."""
    own, link = links.of[job], links.records[record]
    link.job = other
    link.before = NEVER
    link.after = own.first
    if own.first != NEVER:
        links.records[own.first].before = record
    own.first = record
    own.count += 1


@kernel
def _leave(links: Links, record: int, job: int) -> None:
    """Take ``record`` out of the list of ``job``."""
    own, link = links.of[job], links.records[record]
    if link.before == NEVER:
        own.first = link.after
    else:
        links.records[link.before].after = link.after
    if link.after != NEVER:
        links.records[link.after].before = link.before
    own.count -= 1


@kernel
def _is_used(state: EngineState, node_class: int, piece: int) -> bool:
    """Return whether a job holds a core of a piece of a class."""
    used = 0
    for word in range(state.piece_cores.shape[1]):
        used |= state.occupied[node_class, 0, word] & state.piece_cores[piece, word]
    return used != 0


@kernel
def link(state: EngineState, links: Links | None, job: int) -> None:
    """Note who holds a core in common with ``job``, which has its pieces and is about to take their cores."""
    if links is None:
        return
    state.runs[job].co_located = 0
    mark = state.clock[0].mark + 1
    state.clock[0].mark = mark
    state.runs[job].mark = mark
    piece = state.jobs[job].pieces
    while piece != NEVER:
        held = state.pieces[piece]
        if _is_used(state, held.node_class, piece):
            _link_piece(state, links, job, piece, mark)
        piece = held.next


@kernel
def _link_piece(state: EngineState, links: Links, job: int, piece: int, mark: int) -> None:
    node_class = state.pieces[piece].node_class
    for place in range(state.classes[node_class].listed):
        other = state.listed[node_class, place]
        guest = state.pieces[other].job
        if state.runs[guest].mark != mark and overlap(state.piece_cores, piece, other):
            state.runs[guest].mark = mark
            state.runs[job].co_located += state.runs[guest].busy
            pair = _new_pair(links)
            _enter(links, pair, job, guest)
            _enter(links, pair + 1, guest, job)


@kernel
def unlink(links: Links | None, job: int) -> None:
    """Forget who had a core in common with ``job``."""
    if links is None:
        return
    record = links.of[job].first
    while record != NEVER:
        after = links.records[record].after
        _leave(links, record ^ 1, links.records[record].job)
        pair = record - (record & 1)
        links.records[pair].after = links.pool[0].spare
        links.pool[0].spare = pair
        record = after
    links.of[job].first = NEVER
    links.of[job].count = 0
