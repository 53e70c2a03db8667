"""Slots of cores, the cores that Slurm's rows take, and which jobs have cores in common.

Slots of cores: taking, giving back, and the multiplicity that follows.

A stack of core sets per node (``occupied``, ``busy``): level ``k`` holds the cores with more than ``k`` jobs.
Adding a job to a set of cores, or removing it, is one word operation a level.

The cores of Slurm's rows, node by node: nodes are ranked by how few are taken, idle or in a row.

A core without a free slot is taken in every row. It is in all of them anyway, unless one of its jobs is in
none (``rows``).

Who has a core in common with whom: kept for running jobs where cores have several slots.

A job's cores never change while it holds them, so the pairs are found once, when it takes them; ends, changes
of phase and projections then go along its list instead of over all parts on all of its nodes.
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
from simulator.state.node_sets import count_bits, move_node

IDLE = 0
"""Kind of load: cores that are not idle; ``row + 1`` is that of cores that are not free in ``row``."""


@kernel
def taken_cores(state: EngineState, rows: Rows, kind: int, node: int, word: int) -> int:
    """Return the cores of ``node`` that are taken, as a set."""
    if kind == IDLE:
        return state.occupied[node, 0, word]
    return rows.cells[kind - 1, node, word] | state.occupied[node, state.rules[0].slots - 1, word]


@kernel
def _rank_of_cores(state: EngineState, rows: Rows, kind: int, node: int) -> None:
    taken = 0
    for word in range(len(state.valid)):
        taken += count_bits(taken_cores(state, rows, kind, node, word))
    before = rows.taken[kind, node]
    if taken != before:
        rows.taken[kind, node] = taken
        move_node(state.ranking, kind, node, before, taken)


@kernel
def rank_by_cores(state: EngineState, rows: Rows, node: int, in_rows: bool) -> None:
    """Rank ``node``, whose slots are others now, by idle cores, and in its rows where it is asked for."""
    _rank_of_cores(state, rows, IDLE, node)
    if in_rows:
        for row in range(state.rules[0].slots):
            _rank_of_cores(state, rows, row + 1, node)


@kernel
def change_cells(state: EngineState, rows: Rows, row: int, job: int) -> None:
    """Put the cores of ``job`` into ``row``, or take them out, where cells are kept."""
    if rows.cells.shape[0] == 0:
        return
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        node = state.parts[part].node
        for word in range(state.mask.shape[1]):
            rows.cells[row, node, word] ^= state.mask[part, word]
        _rank_of_cores(state, rows, row + 1, node)


@kernel
def add_to_stack(stack: IntegerGrid, mask: IntegerGrid, node: int, part: int) -> None:
    """Count one job more on the cores of ``part``, on ``node``."""
    for word in range(stack.shape[2]):
        cores = mask[part, word]
        if cores == 0:
            continue
        for level in range(stack.shape[1] - 1, 0, -1):
            stack[node, level, word] |= stack[node, level - 1, word] & cores
        stack[node, 0, word] |= cores


@kernel
def remove_from_stack(stack: IntegerGrid, mask: IntegerGrid, node: int, part: int) -> None:
    """Count one job less on the cores of ``part``, on ``node``."""
    top = stack.shape[1] - 1
    for word in range(stack.shape[2]):
        cores = mask[part, word]
        if cores == 0:
            continue
        for level in range(top):
            above = stack[node, level + 1, word] & cores
            stack[node, level, word] = (stack[node, level, word] & ~cores) | above
        stack[node, top, word] &= ~cores


@kernel
def part_multiplicity(stack: IntegerGrid, mask: IntegerGrid, node: int, part: int, least: int) -> int:
    """Return the most jobs on a core of ``part``, or ``least`` if that is more."""
    multiplicity = least
    for word in range(stack.shape[2]):
        cores = mask[part, word]
        while multiplicity < stack.shape[1] and stack[node, multiplicity, word] & cores:
            multiplicity += 1
    return multiplicity


@kernel
def cores_at_top(stack: IntegerGrid, mask: IntegerGrid, node: int, part: int, cores: int) -> int:
    """Return how many of the ``cores`` cores of ``part``, a job's, have no free slot."""
    top = stack.shape[1] - 1
    if top == 0:
        return cores
    count = 0
    for word in range(stack.shape[2]):
        count += count_bits(stack[node, top, word] & mask[part, word])
    return count


@kernel
def overlap(mask: IntegerGrid, a: int, b: int) -> bool:
    """Return whether the parts ``a`` and ``b``, on the same node, have a core in common."""
    common = 0
    for word in range(mask.shape[1]):
        common |= mask[a, word] & mask[b, word]
    return common != 0


@kernel
def _rank(state: EngineState, rows: Rows | None, node: int, before: int, freed: bool) -> None:
    """Rank a node of which other slots are occupied now; ``freed``: another number of its cores is free."""
    if rows is None:
        if state.rules[0].nodes > 1:  # an only node needs no ranking
            move_node(state.ranking, 0, node, before, state.nodes[node].used)
        return
    rank_by_cores(state, rows, node, freed)


@kernel
def list_parts(state: EngineState, job: int) -> None:
    """List the parts of ``job`` on their nodes."""
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        held = state.parts[part]
        here = state.nodes[held.node]
        held.job = job
        held.place = here.listed
        state.listed[held.node, here.listed] = part
        here.listed += 1


@kernel
def unlist_parts(state: EngineState, job: int) -> None:
    """Undo ``list_parts``."""
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        held = state.parts[part]
        here = state.nodes[held.node]
        here.listed -= 1
        moved = state.listed[held.node, here.listed]
        state.listed[held.node, held.place] = moved
        state.parts[moved].place = held.place


@kernel
def take_slots(state: EngineState, job: int) -> None:
    """Let ``job`` hold the cores that its parts name."""
    cores = state.jobs[job].cores
    memory_kib = state.jobs[job].memory_kib
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        held = state.parts[part]
        here = state.nodes[held.node]
        add_to_stack(state.occupied, state.mask, held.node, part)
        before = here.free
        after = before - cores_at_top(state.occupied, state.mask, held.node, part, cores)
        here.free = after
        if here.owner == NEVER:
            for free in range(after + 1, before + 1):
                state.open_nodes[free] -= 1
        here.used += cores
        _rank(state, state.rows, held.node, here.used - cores, before != after)
        here.free_kib -= memory_kib
    list_parts(state, job)


@kernel
def free_slots(state: EngineState, job: int) -> None:
    """Let ``job`` hold nothing any more; its parts still say what it held."""
    cores = state.jobs[job].cores
    memory_kib = state.jobs[job].memory_kib
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        held = state.parts[part]
        here = state.nodes[held.node]
        before = here.free
        after = before + cores_at_top(state.occupied, state.mask, held.node, part, cores)
        here.free = after
        if here.owner == NEVER:
            for free in range(before + 1, after + 1):
                state.open_nodes[free] += 1
        remove_from_stack(state.occupied, state.mask, held.node, part)
        here.used -= cores
        _rank(state, state.rows, held.node, here.used + cores, before != after)
        here.free_kib += memory_kib
    unlist_parts(state, job)


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
def _is_used(state: EngineState, part: int) -> bool:
    """Return whether a job holds a core of ``part``."""
    used = 0
    for word in range(state.mask.shape[1]):
        used |= state.occupied[state.parts[part].node, 0, word] & state.mask[part, word]
    return used != 0


@kernel
def link(state: EngineState, links: Links | None, job: int) -> None:
    """Note who holds a core in common with ``job``, which is about to take the cores that its parts name."""
    if links is None:
        return
    state.runs[job].co_located = 0
    mark = state.clock[0].mark + 1
    state.clock[0].mark = mark
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        if not _is_used(state, part):
            continue
        node = state.parts[part].node
        for place in range(state.nodes[node].listed):
            other = state.listed[node, place]
            guest = state.parts[other].job
            if state.runs[guest].mark != mark and overlap(state.mask, part, other):
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
