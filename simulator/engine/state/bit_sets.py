"""Sets of cores or nodes as words of 62 bits in 64-bit integers: bit ``i`` of word ``w`` is ``62 w + i``.

62 of 64 bits, so that no intermediate result is negative or overflows, in numba as in plain Python.
"""

from __future__ import annotations

import numpy as np

from simulator.engine.kernels.compilation import kernel
from simulator.engine.kernels.field_records import IntegerRow, Ints

WORD_BITS = 62


def full_set(size: int) -> Ints:
    """Return the set of all of ``size`` cores (or nodes), shape (words,)."""
    words = -(-size // WORD_BITS)
    every = np.full(words, (1 << WORD_BITS) - 1, dtype=np.int64)
    if size % WORD_BITS:
        every[-1] = (1 << size % WORD_BITS) - 1
    return every


@kernel
def count_bits(word: int) -> int:
    """Return how many bits of ``word`` are set."""
    word = word - ((word >> 1) & 0x5555555555555555)
    word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0F
    word = word + (word >> 8)
    word = word + (word >> 16)
    word = word + (word >> 32)
    return word & 0x7F


@kernel
def bit_index(bit: int) -> int:
    """Return the place of the only bit of ``bit``."""
    return count_bits(bit - 1)


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
