"""Sets of cores or nodes as bits, and sets of nodes by their load.

Sets of cores or nodes as words of 62 bits in 64-bit integers: bit ``i`` of word ``w`` is ``62 w + i``.

62 of 64 bits, so that no intermediate result is negative or overflows, in numba as in plain Python.

Sets of nodes by their load, for placements that want the least loaded ones, lowest index first.

What load is the placement says: occupied slots (thesis), or cores that are not idle, or not free in a row
(Slurm). There may be several kinds of it. Sets are words of bits, so nodes are chosen many at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.jit.compilation import kernel, kernel_state
from simulator.jit.field_records import IntegerGrid, IntegerRow, Ints, StateAllocator

WORD_BITS = 62


def full_set(size: int) -> Ints:
    """Return the set of all of ``size`` cores (or nodes), shape (words,)."""
    words = -(-size // WORD_BITS)
    every = np.full(words, (1 << WORD_BITS) - 1, dtype=np.int64)
    if size % WORD_BITS:
        every[-1] = (1 << size % WORD_BITS) - 1
    return every


@kernel
def bit_index(bit: int) -> int:
    """Return the place of the only bit of ``bit``."""
    return (bit - 1).bit_count()


@kernel
def lowest_bits(word: int, count: int) -> int:
    """Return the ``count`` lowest set bits of ``word``; it must have that many."""
    taken = 0
    for _ in range(count):
        bit = word & -word
        taken |= bit
        word ^= bit
    return taken


@kernel
def flip(members: IntegerRow, member: int) -> None:
    """Add ``member`` to a set, or remove it."""
    word = member // WORD_BITS
    members[word] ^= 1 << (member - word * WORD_BITS)


@kernel
def has(members: IntegerRow, member: int) -> bool:
    """Return whether ``member`` is in a set."""
    word = member // WORD_BITS
    return bool((members[word] >> (member - word * WORD_BITS)) & 1)


@kernel_state
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
def move_nodes(
    ranking: Ranking,
    kind: int,
    sets: IntegerGrid,
    row: int,
    words: tuple[int, int],
    size: int,
    loads: tuple[int, int],
) -> None:
    """Do the same for ``size`` nodes, which are the set ``row`` in its words from the first to the last."""
    before, after = loads
    for word in range(words[0], words[1] + 1):
        nodes = sets[row, word]
        ranking.sets[kind, before, word] ^= nodes
        ranking.sets[kind, after, word] ^= nodes
    ranking.size[kind, before] -= size
    ranking.size[kind, after] += size
    if ranking.size[kind, before] == 0:
        _flip_load(ranking, kind, before)
    if ranking.size[kind, after] == size:
        _flip_load(ranking, kind, after)


@kernel
def _flip_load(ranking: Ranking, kind: int, load: int) -> None:
    word = load // WORD_BITS
    ranking.loads[kind, word] ^= 1 << (load - word * WORD_BITS)
