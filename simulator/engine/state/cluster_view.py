"""The cluster as plug-ins in plain Python see it, and what plain Python reads from a state."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from simulator.engine.kernels.field_records import IntegerGrid
from simulator.engine.state.bit_sets import WORD_BITS, has
from simulator.engine.state.engine_state import NEVER, EngineState


def members(words: Iterable[int]) -> list[int]:
    """Return the members of a set of cores or nodes, ascending."""
    found = []
    for place, word in enumerate(words):
        rest = int(word)
        while rest:
            bit = rest & -rest
            rest ^= bit
            found.append(place * WORD_BITS + bit.bit_length() - 1)
    return found


def words_of(grid: IntegerGrid, *index: int) -> list[int]:
    """Return the words of one set of cores in a grid of sets."""
    return [grid[(*index, word)] for word in range(grid.shape[-1])]


def running_jobs(state: EngineState) -> list[int]:
    """Return the jobs that hold cores, in order of job number."""
    return sorted(state.lists[place].running for place in range(state.clock[0].active))


def parts_of(state: EngineState, job: int) -> range:
    """Return the parts of a job."""
    return range(state.jobs[job].part_at, state.jobs[job].part_end)


class PoolState:
    """Slots and memory of a pool at this instant.

    Parameters
    ----------
    state
        What the engine works on; not for plug-ins.
    """

    def __init__(self, state: EngineState) -> None:
        self.state = state
        self.asking = NEVER

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.state.rules[0].nodes

    @property
    def cores(self) -> int:
        """Number of cores a node."""
        return self.state.rules[0].cores

    @property
    def multiplicity(self) -> int:
        """Most jobs a core."""
        return self.state.rules[0].slots

    def jobs_a_core(self, node: int) -> npt.NDArray[np.int64]:
        """Return how many jobs hold each core of ``node``; no slot is free where the job may not go."""
        if has(self.state.barred, node) or self.state.nodes[node].owner not in (NEVER, self.asking):
            return np.full(self.cores, self.multiplicity, dtype=np.int64)
        counts = np.zeros(self.cores, dtype=np.int64)
        for level in range(self.multiplicity):
            counts[members(words_of(self.state.occupied, node, level))] += 1
        return counts

    def free_memory_kib(self, node: int) -> int:
        """Return the memory of ``node`` that no job holds."""
        return self.state.nodes[node].free_kib

    def holders(self, node: int) -> dict[int, list[int]]:
        """Return the core ids that each job on ``node`` holds, by job index."""
        state = self.state
        parts = [state.listed[node, place] for place in range(state.nodes[node].listed)]
        return {state.parts[part].job: members(words_of(state.mask, part)) for part in parts}

    def cores_of(self, job: int) -> dict[int, list[int]]:
        """Return the core ids by node that the parts of the job with index ``job`` name."""
        state = self.state
        return {state.parts[part].node: members(words_of(state.mask, part)) for part in parts_of(state, job)}
