"""Who has a core in common with whom: kept for running jobs where cores have several slots.

A job's cores never change while it holds them, so the pairs are found once, when it takes them; ends, changes
of phase and projections then go along its list instead of over all parts on all of its nodes.
"""

from __future__ import annotations

from simulator.engine.cores.core_slots import overlap
from simulator.engine.kernels.compilation import kernel
from simulator.engine.kernels.field_records import StateAllocator
from simulator.engine.state.engine_state import NEVER, EngineState
from simulator.engine.state.sharing_state import LinkedRecord, LinkPoolRecord, LinkRecord, Links


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
