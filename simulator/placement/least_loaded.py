"""The least loaded nodes of a ranking, lowest index first, for a job that waits."""

from __future__ import annotations

from simulator.engine.cores.room_for_job import fits
from simulator.engine.kernels.compilation import kernel
from simulator.engine.state.bit_sets import WORD_BITS, bit_index, count_bits, lowest_bits
from simulator.engine.state.engine_state import State


@kernel
def _choose_at(state: State, kind: int, load: int, job: int, wanted: int) -> int:
    """Choose up to ``wanted`` nodes with ``load`` that suit ``job``; return how many."""
    asked, sets = state.jobs[job], state.ranking.sets
    found = 0
    for word in range(len(state.chosen)):
        rest = sets[kind, load, word] & ~state.barred[word]
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
def _choose_some(state: State, kind: int, load: int, wanted: int) -> None:
    """Choose the first ``wanted`` of more nodes with ``load``, of which any will do."""
    sets = state.ranking.sets
    word = 0
    found = count_bits(sets[kind, load, 0])
    while found <= wanted:
        state.chosen[word] |= sets[kind, load, word]
        wanted -= found
        word += 1
        found = count_bits(sets[kind, load, word])
    state.chosen[word] |= lowest_bits(sets[kind, load, word], wanted)


@kernel
def _choose_all(state: State, kind: int, load: int) -> None:
    for word in range(len(state.chosen)):
        state.chosen[word] |= state.ranking.sets[kind, load, word]


@kernel
def choose_nodes(state: State, kind: int, job: int, most: int, alike: bool) -> bool:
    """Choose the least loaded nodes for ``job``, up to the load ``most``; return whether there are enough.

    ``alike``: if they need no memory and nobody owns one, every node of such a load suits the job.
    """
    ranking, barred = state.ranking, 0
    for word in range(len(state.chosen)):
        state.chosen[word] = 0
        barred |= state.barred[word]
    wanted = state.jobs[job].nodes
    alike = alike and state.jobs[job].memory_kib == 0 and state.clock[0].closed == 0 and barred == 0
    for place in range(ranking.loads.shape[1]):
        rest = ranking.loads[kind, place]
        while rest and wanted > 0:
            bit = rest & -rest
            rest ^= bit
            load = place * WORD_BITS + bit_index(bit)
            if load > most:
                return False
            if not alike:
                wanted -= _choose_at(state, kind, load, job, wanted)
            elif ranking.size[kind, load] <= wanted:
                _choose_all(state, kind, load)
                wanted -= ranking.size[kind, load]
            else:
                _choose_some(state, kind, load, wanted)
                wanted = 0
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
