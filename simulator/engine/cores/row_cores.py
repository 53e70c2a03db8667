"""The cores of Slurm's rows, node by node: nodes are ranked by how few are taken, idle or in a row.

A core without a free slot is taken in every row. It is in all of them anyway, unless one of its jobs is in
none (``rows``).
"""

from __future__ import annotations

from simulator.engine.kernels.compilation import kernel
from simulator.engine.state.bit_sets import count_bits
from simulator.engine.state.engine_state import EngineState
from simulator.engine.state.node_ranking import move_node
from simulator.engine.state.sharing_state import Rows

IDLE = 0
"""Kind of load: cores that are not idle; ``row + 1`` is that of cores that are not free in ``row``."""


@kernel
def taken_cores(state: EngineState, rows: Rows, kind: int, node: int, word: int) -> int:
    """Return the cores of ``node`` that are taken, as a set."""
    if kind == IDLE:
        return state.occupied[node, 0, word]
    return rows.cells[kind - 1, node, word] | state.occupied[node, state.rules[0].slots - 1, word]


@kernel
def _rank(state: EngineState, rows: Rows, kind: int, node: int) -> None:
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
    _rank(state, rows, IDLE, node)
    if in_rows:
        for row in range(state.rules[0].slots):
            _rank(state, rows, row + 1, node)


@kernel
def change_cells(state: EngineState, rows: Rows, row: int, job: int) -> None:
    """Put the cores of ``job`` into ``row``, or take them out, where cells are kept."""
    if rows.cells.shape[0] == 0:
        return
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        node = state.parts[part].node
        for word in range(state.mask.shape[1]):
            rows.cells[row, node, word] ^= state.mask[part, word]
        _rank(state, rows, row + 1, node)
