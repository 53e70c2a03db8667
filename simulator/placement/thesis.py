"""Placement as the thesis does it: least occupied nodes, then least occupied cores.

Source: thesis section 5.2.1. A job of ``n`` nodes and ``c`` cores on each goes to the ``n`` nodes with the
fewest occupied slots, lowest index first, among those with ``c`` cores that have a free slot and with the
memory; on each to the ``c`` cores with the fewest jobs, lowest index first.
"""

from __future__ import annotations

from simulator.engine.bits import WORD_BITS, bit_index, count_bits, lowest_bits
from simulator.engine.compile import kernel
from simulator.engine.records import Grid
from simulator.engine.room import fits, job_fits
from simulator.engine.state import State


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
def _choose_at_load(state: State, by_load: Grid, job: int, load: int, wanted: int) -> int:
    """Choose up to ``wanted`` nodes with ``load`` that suit ``job``, by index; return how many."""
    asked = state.jobs[job]
    found = 0
    for word in range(len(state.chosen)):
        rest = by_load[load, word] & ~state.barred[word]
        while rest:
            bit = rest & -rest
            rest ^= bit
            if fits(asked, state.nodes[word * WORD_BITS + bit_index(bit)]):
                state.chosen[word] |= bit
                found += 1
                if found == wanted:
                    return found
    return found


@kernel
def _choose_nodes(state: State, by_load: Grid | None, job: int) -> bool:
    """Choose the nodes of ``job``, fewest occupied slots first; return whether there are enough."""
    if by_load is None:
        return False
    barred = 0
    for word in range(len(state.chosen)):
        state.chosen[word] = 0
        barred |= state.barred[word]
    if state.rules[0].nodes == 1:
        state.chosen[0] = 1
        return barred == 0
    wanted = state.jobs[job].nodes
    # with one slot a core and memory to spare, every node with that load suits the job or none does
    closed = barred != 0 or state.clock[0].closed > 0
    alike = state.rules[0].slots == 1 and state.jobs[job].memory_kib == 0 and not closed
    for place in range(len(state.loads)):
        rest = state.loads[place]
        while rest and wanted > 0:
            bit = rest & -rest
            rest ^= bit
            load = place * WORD_BITS + bit_index(bit)
            if alike and state.load_size[load] <= wanted:
                for word in range(len(state.chosen)):
                    state.chosen[word] |= by_load[load, word]
                wanted -= state.load_size[load]
            else:
                wanted -= _choose_at_load(state, by_load, job, load, wanted)
    return wanted == 0


@kernel
def name_nodes(state: State, job: int) -> None:
    """Write the chosen nodes into the parts of ``job``."""
    part = state.jobs[job].part_at
    for word in range(len(state.chosen)):
        rest = state.chosen[word]
        while rest:
            bit = rest & -rest
            rest ^= bit
            state.parts[part].node = word * WORD_BITS + bit_index(bit)
            part += 1


@kernel
def place(state: State, job: int) -> bool:
    """Name in the parts of ``job`` the cores that it gets now; return whether it fits."""
    if not job_fits(state, job) or not _choose_nodes(state, state.by_load, job):
        return False
    name_nodes(state, job)
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        choose_cores(state, part, state.jobs[job].cores)
    return True
