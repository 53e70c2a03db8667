"""The cluster as plug-ins in plain Python see it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from simulator.engine.bits import WORD_BITS
from simulator.engine.state import FREE_KIB, JOB, LISTED, NODE, PART_AT, State


def members(words: Sequence[int]) -> list[int]:
    """Return the members of a set of cores or nodes, ascending."""
    found = []
    for place, word in enumerate(words):
        rest = int(word)
        while rest:
            bit = rest & -rest
            rest ^= bit
            found.append(place * WORD_BITS + bit.bit_length() - 1)
    return found


class Cluster:
    """Slots and memory of a pool at this instant.

    Parameters
    ----------
    state
        What the engine works on; not for plug-ins.
    """

    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.state.nodes.shape[1])

    @property
    def cores(self) -> int:
        """Number of cores a node."""
        return len(self.state.roomy) - 1

    @property
    def multiplicity(self) -> int:
        """Most jobs a core."""
        return int(self.state.occupied.shape[1])

    def jobs_a_core(self, node: int) -> npt.NDArray[np.int64]:
        """Return how many jobs hold each core of ``node``."""
        counts = np.zeros(self.cores, dtype=np.int64)
        for level in range(self.multiplicity):
            counts[members(self.state.occupied[node, level])] += 1
        return counts

    def free_memory_kib(self, node: int) -> int:
        """Return the memory of ``node`` that no job holds."""
        return int(self.state.nodes[FREE_KIB, node])

    def holders(self, node: int) -> dict[int, list[int]]:
        """Return the core ids that each job on ``node`` holds, by job index."""
        parts = self.state.listed[node, : self.state.nodes[LISTED, node]]
        return {int(self.state.parts[JOB, part]): members(self.state.mask[part]) for part in parts}

    def cores_of(self, job: int) -> dict[int, list[int]]:
        """Return the core ids by node that the parts of the job with index ``job`` name."""
        first, last = self.state.jobs[PART_AT, job], self.state.jobs[PART_AT, job + 1]
        return {
            int(self.state.parts[NODE, part]): members(self.state.mask[part]) for part in range(first, last)
        }
