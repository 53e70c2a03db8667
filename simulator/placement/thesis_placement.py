"""Placement as the thesis does it: least occupied nodes, then least occupied cores.

Source: thesis section 5.2.1. A job of ``n`` nodes and ``c`` cores on each goes to the ``n`` nodes with the
fewest occupied slots, lowest index first, among those with ``c`` cores that have a free slot and with the
memory; on each to the ``c`` cores with the fewest jobs, lowest index first.
"""

from __future__ import annotations

from simulator.engine.cores.room_for_job import job_fits
from simulator.engine.kernels.compilation import kernel
from simulator.engine.state.bit_sets import count_bits, lowest_bits
from simulator.engine.state.engine_state import State
from simulator.placement.least_loaded import choose_nodes, name_nodes


@kernel
def choose_cores(state: State, part: int, cores: int) -> None:
    """Name in ``part`` the ``cores`` least occupied cores of its node, lowest index first."""
    node = state.parts[part].node
    for word in range(len(state.valid)):
        state.mask[part, word] = 0
    for level in range(state.occupied.shape[1]):
        for word in range(len(state.valid)):
            least = state.valid[word] & ~state.occupied[node, level, word]
            if level > 0:
                least &= state.occupied[node, level - 1, word]
            if least == 0:
                continue
            found = count_bits(least)
            if found > cores:
                least = lowest_bits(least, cores)
                found = cores
            state.mask[part, word] |= least
            cores -= found
            if cores == 0:
                return


@kernel
def _choose_nodes(state: State, job: int) -> bool:
    """Choose the nodes of ``job``, fewest occupied slots first; return whether there are enough."""
    if state.rules[0].nodes == 1:
        state.chosen[0] = 1
        return state.barred[0] == 0
    # with one slot a core every node with that load suits the job or none does
    return choose_nodes(state, 0, job, state.listed.shape[1], state.rules[0].slots == 1)


@kernel
def place(state: State, job: int) -> bool:
    """Name in the parts of ``job`` the cores that it gets now; return whether it fits."""
    if not job_fits(state, job) or not _choose_nodes(state, job):
        return False
    name_nodes(state, job)
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        choose_cores(state, part, state.jobs[job].cores)
    return True
