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
from simulator.engine.compile import kernel
from simulator.engine.room import fits, job_fits
from simulator.engine.rows import sort_rows
from simulator.engine.sharing_state import Rows
from simulator.engine.state import NEVER, State
from simulator.placement.thesis import name_nodes


@kernel
def _spare(state: State, rows: Rows, row: int, node: int, word: int) -> int:
    """Return the cores of ``node`` that are free in ``row``; idle ones for ``NEVER``."""
    if row == NEVER:
        return state.valid[word] & ~state.occupied[node, 0, word]
    full = state.occupied[node, state.rules[0].slots - 1, word]
    return state.valid[word] & ~rows.cells[row, node, word] & ~full


@kernel
def _choose_nodes(state: State, rows: Rows, row: int, job: int) -> bool:
    """Choose the nodes with the most spare cores; return False if there are too few with enough."""
    asked = state.jobs[job]
    most = 0
    for node in range(state.rules[0].nodes):
        spare = 0
        if fits(asked, state.nodes[node]) and not has(state.barred, node):
            for word in range(len(state.valid)):
                spare += count_bits(_spare(state, rows, row, node, word))
        state.nodes[node].spare = spare
        most = max(most, spare)
    for word in range(len(state.chosen)):
        state.chosen[word] = 0
    wanted = asked.nodes
    while most >= asked.cores:
        following = 0
        for node in range(state.rules[0].nodes):
            spare = state.nodes[node].spare
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
def _choose_cores(state: State, rows: Rows, row: int, part: int, cores: int) -> None:
    for word in range(len(state.valid)):
        spare = _spare(state, rows, row, state.parts[part].node, word)
        found = count_bits(spare)
        if found > cores:
            spare = lowest_bits(spare, cores)
            found = cores
        state.mask[part, word] = spare
        cores -= found


@kernel
def _place_in_row(state: State, rows: Rows, row: int, job: int) -> bool:
    if not _choose_nodes(state, rows, row, job):
        return False
    name_nodes(state, job)
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        _choose_cores(state, rows, row, part, state.jobs[job].cores)
    return True


@kernel
def place(state: State, rows: Rows, job: int) -> bool:
    """Name in the parts of ``job`` the cores that it gets now; return whether it fits."""
    if not job_fits(state, job):
        return False
    placed = _place_in_row(state, rows, NEVER, job)
    if not placed:
        sort_rows(rows)
    rank = 0
    while not placed and rank < len(rows.order):
        placed = _place_in_row(state, rows, rows.order[rank], job)
        rank += 1
    return placed
