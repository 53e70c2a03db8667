"""Placement as Slurm does it with ``SelectTypeParameters=CR_Core,CR_LLN`` and ``OverSubscribe=FORCE:M``.

First idle cores are looked for: on the nodes with the most idle cores, lowest index first. If there are not
enough, the rows are tried, fullest first: on the nodes with the most cores that are free *in that row*,
whatever other rows hold. On a node the job gets the lowest of these cores. So, unlike in the thesis's rule, a
node with many free slots is not preferred to one whose cores are free in the row that is tried.

Source: Slurm 22.05, ``cons_common/job_test.c`` (``_job_test``, steps 1 and 4) and ``cons_tres/job_test.c``
(``_eval_nodes_lln``). With one slot a core it is the thesis's rule.
"""

from __future__ import annotations

from simulator.engine.cores.room_for_job import job_fits
from simulator.engine.cores.row_cores import IDLE, taken_cores
from simulator.engine.cores.slurm_rows import sort_rows
from simulator.engine.kernels.compilation import kernel
from simulator.engine.state.bit_sets import count_bits, lowest_bits
from simulator.engine.state.engine_state import State
from simulator.engine.state.sharing_state import Rows
from simulator.placement.least_loaded import choose_nodes, name_nodes


@kernel
def _choose_cores(state: State, rows: Rows, kind: int, part: int, cores: int) -> None:
    for word in range(len(state.valid)):
        spare = state.valid[word] & ~taken_cores(state, rows, kind, state.parts[part].node, word)
        found = count_bits(spare)
        if found > cores:
            spare = lowest_bits(spare, cores)
            found = cores
        state.mask[part, word] = spare
        cores -= found


@kernel
def _place_among(state: State, rows: Rows, kind: int, job: int) -> bool:
    """Place ``job`` on idle cores, or on those that are free in a row."""
    asked = state.jobs[job]
    if not choose_nodes(state, kind, job, state.rules[0].cores - asked.cores, True):
        return False
    name_nodes(state, job)
    for part in range(asked.part_at, asked.part_end):
        _choose_cores(state, rows, kind, part, asked.cores)
    return True


@kernel
def place(state: State, rows: Rows, job: int) -> bool:
    """Name in the parts of ``job`` the cores that it gets now; return whether it fits."""
    if not job_fits(state, job):
        return False
    placed = _place_among(state, rows, IDLE, job)
    if not placed:
        sort_rows(rows)
    rank = 0
    while not placed and rank < len(rows.order):
        placed = _place_among(state, rows, rows.order[rank] + 1, job)
        rank += 1
    return placed
