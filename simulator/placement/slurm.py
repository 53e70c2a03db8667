"""Placement as Slurm does it with ``SelectTypeParameters=CR_Core,CR_LLN`` and ``OverSubscribe=FORCE:M``.

First idle cores are looked for: on the nodes with the most idle cores, lowest index first. If there are not
enough, the rows are tried, fullest first: on the nodes with the most cores that are free *in that row*,
whatever other rows hold. On a node the job gets the lowest of these cores. So, unlike in the thesis's rule, a
node with many free slots is not preferred to one whose cores are free in the row that is tried.

Source: Slurm 22.05, ``cons_common/job_test.c`` (``_job_test``, steps 1 and 4) and ``cons_tres/job_test.c``
(``_eval_nodes_lln``). With one slot a core it is the thesis's rule.
"""

from __future__ import annotations

from simulator.engine.bits import count_bits, flip, has, lowest_bits
from simulator.engine.compile import kernel, kernel_apart
from simulator.engine.room import job_fits
from simulator.engine.rows import sort_rows
from simulator.engine.state import (
    CORES,
    FREE_KIB,
    MEMORY_KIB,
    NEVER,
    NODE,
    NODES,
    PART_AT,
    SPARE,
    State,
)
from simulator.placement import thesis


@kernel
def _spare(state: State, row: int, node: int, word: int) -> int:
    """Return the cores of ``node`` that are free in ``row``; idle ones for ``NEVER``."""
    held = state.occupied[node, 0, word] if row == NEVER else state.rows[row, node, word]
    spare: int = state.valid[word] & ~held
    return spare


@kernel
def _choose_nodes(state: State, row: int, job: int) -> bool:
    """Choose the nodes with the most spare cores; return False if there are too few with enough."""
    cores, memory_kib = state.jobs[CORES, job], state.jobs[MEMORY_KIB, job]
    most = 0
    for node in range(state.nodes.shape[1]):
        spare = 0
        if state.nodes[FREE_KIB, node] >= memory_kib and not has(state.barred, node):
            for word in range(state.valid.shape[0]):
                spare += count_bits(_spare(state, row, node, word))
        state.nodes[SPARE, node] = spare
        most = max(most, spare)
    for word in range(state.chosen.shape[0]):
        state.chosen[word] = 0
    wanted = state.jobs[NODES, job]
    while most >= cores:
        following = 0
        for node in range(state.nodes.shape[1]):
            spare = state.nodes[SPARE, node]
            if spare == most:
                flip(state.chosen, node)
                wanted -= 1
                if wanted == 0:
                    return True
            elif spare < most:
                following = max(following, spare)
        most = following
    return False


@kernel
def _choose_cores(state: State, row: int, part: int, cores: int) -> None:
    for word in range(state.valid.shape[0]):
        spare = _spare(state, row, state.parts[NODE, part], word)
        found = count_bits(spare)
        if found > cores:
            spare = lowest_bits(spare, cores)
            found = cores
        state.mask[part, word] = spare
        cores -= found


@kernel
def _place_in_row(state: State, row: int, job: int) -> bool:
    if not _choose_nodes(state, row, job):
        return False
    thesis.name_nodes(state, job)
    for part in range(state.jobs[PART_AT, job], state.jobs[PART_AT, job + 1]):
        _choose_cores(state, row, part, state.jobs[CORES, job])
    return True


@kernel_apart
def place(state: State, job: int) -> bool:
    """Name in the parts of ``job`` the cores that it gets now; return whether it fits."""
    if state.occupied.shape[1] == 1:
        return thesis.place(state, job)
    if not job_fits(state, job):
        return False
    placed = _place_in_row(state, NEVER, job)
    if not placed:
        sort_rows(state)
    rank = 0
    while not placed and rank < len(state.row_order):
        placed = _place_in_row(state, state.row_order[rank], job)
        rank += 1
    return placed
