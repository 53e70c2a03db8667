"""Sets of nodes by their load, for placements that want the least loaded ones, lowest index first.

What load is the placement says: occupied slots (thesis), or cores that are not idle, or not free in a row
(Slurm). There may be several kinds of it. Sets are words of bits, so nodes are chosen many at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.engine.kernels.compilation import kernel
from simulator.engine.kernels.field_records import IntegerGrid, StateAllocator
from simulator.engine.state.bit_sets import WORD_BITS, full_set


class Ranking(NamedTuple):
    """Nodes by kind of load, and load.

    ``sets[k, u]`` is the set of nodes with load ``u`` of kind ``k``, ``size[k, u]`` how many they are,
    ``loads[k]`` the set of the ``u`` that occur.
    """

    sets: IntegerGrid
    size: IntegerGrid
    loads: IntegerGrid


def new_ranking(make: StateAllocator, kinds: int, nodes: int, most: int) -> Ranking:
    """Return the sets of nodes without any load, of so many kinds, up to the load ``most``."""
    every = full_set(nodes)
    sets = np.zeros((kinds, most + 1, len(every)), dtype=np.int64)
    sets[:, 0] = every
    size = np.zeros((kinds, most + 1), dtype=np.int64)
    size[:, 0] = nodes
    loads = np.zeros((kinds, len(full_set(most + 1))), dtype=np.int64)
    loads[:, 0] = 1
    return Ranking(make.filled(sets), make.filled(size), make.filled(loads))


@kernel
def move_node(ranking: Ranking, kind: int, node: int, before: int, after: int) -> None:
    """Note that the load of ``node`` has changed."""
    word = node // WORD_BITS
    bit = 1 << (node - word * WORD_BITS)
    ranking.sets[kind, before, word] ^= bit
    ranking.sets[kind, after, word] ^= bit
    ranking.size[kind, before] -= 1
    ranking.size[kind, after] += 1
    if ranking.size[kind, before] == 0:
        _flip_load(ranking, kind, before)
    if ranking.size[kind, after] == 1:
        _flip_load(ranking, kind, after)


@kernel
def _flip_load(ranking: Ranking, kind: int, load: int) -> None:
    word = load // WORD_BITS
    ranking.loads[kind, word] ^= 1 << (load - word * WORD_BITS)
