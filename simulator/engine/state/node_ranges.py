"""Where jobs ran, as ranges of neighbouring nodes.

A job of a thousand nodes mostly has neighbours, and the same cores on each: one range instead of a thousand
parts. Of a log of a year that is a twentieth of the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.engine.kernels.field_records import Ints
from simulator.engine.state.cluster_view import members

Shorts = npt.NDArray[np.int32]

_PARTS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Nodes and sets of cores of each of J jobs, as R ranges, in the order in which a job holds them.

    Parameters
    ----------
    offsets
        Shape (J + 1,): the ranges of job ``j`` are ``offsets[j]`` to before ``offsets[j + 1]``.
    first, count
        Shape (R,): the first node of a range, and how many neighbours it has in all.
    cores
        Shape (R,): which of ``sets`` the job has on each of them.
    sets
        Shape (S, words): the sets of cores that occur, as bits.
    """

    offsets: Ints
    first: Shorts
    count: Shorts
    cores: Shorts
    sets: Ints

    @classmethod
    def of_parts(
        cls,
        part_at: Ints,
        part_end: Ints,
        node: npt.NDArray[np.integer],
        mask: Ints,
        at_once: int = _PARTS_AT_ONCE,
    ) -> Places:
        """Return the places of jobs that hold parts ``part_at[j]``, which ascends, to before ``part_end[j]``.

        ``node`` and ``mask`` have shapes (parts,) and (parts, words). Places of about so many parts
        are looked at ``at_once``.
        """
        ranges = _Ranges()
        done = 0
        while done < len(part_at):
            last = max(int(np.searchsorted(part_at, part_at[done] + at_once)), done + 1)
            ranges.add(part_at[done:last], part_end[done:last] - part_at[done:last], node, mask)
            done = last
        return ranges.places(mask.shape[1])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nodes(self) -> Ints:
        """How many nodes each job holds; shape (J,)."""
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.count, dtype=np.int64)))
        return np.diff(sums[self.offsets])

    def cores_of(self, job: int) -> dict[int, list[int]]:
        """Return the core ids by node of the job with index ``job``."""
        held: dict[int, list[int]] = {}
        for place in range(int(self.offsets[job]), int(self.offsets[job + 1])):
            first = int(self.first[place])
            for node in range(first, first + int(self.count[place])):
                held[node] = members(self.sets[self.cores[place]])
        return held


class _Ranges:
    """Ranges of the jobs that were looked at so far, in pieces."""

    def __init__(self) -> None:
        self._held: list[Shorts] = [np.zeros(1, dtype=np.int32)]
        self._first: list[Shorts] = []
        self._count: list[Shorts] = []
        self._cores: list[Shorts] = []
        self._sets: dict[bytes, int] = {}

    def add(self, part_at: Ints, held: Ints, node: npt.NDArray[np.integer], mask: Ints) -> None:
        """Add jobs that hold so many parts each."""
        total = int(held.sum())
        job_at = np.concatenate((np.zeros(1, np.int64), np.cumsum(held)))
        parts: slice | Ints = slice(int(part_at[0]), int(part_at[0]) + total)
        if (np.diff(part_at) != held[:-1]).any():
            parts = np.repeat(part_at - job_at[:-1], held) + np.arange(total)
        nodes, cores = np.asarray(node[parts]), np.asarray(mask[parts])
        begins = np.ones(total, dtype=bool)
        begins[1:] = (nodes[1:] != nodes[:-1] + 1) | (cores[1:] != cores[:-1]).any(axis=1)
        begins[job_at[:-1][held > 0]] = True
        at = np.flatnonzero(begins)
        sets, which = np.unique(cores[at], axis=0, return_inverse=True)
        numbers = [self._sets.setdefault(cores.tobytes(), len(self._sets)) for cores in sets]
        self._held.append(np.diff(np.searchsorted(at, job_at)).astype(np.int32))
        self._first.append(nodes[at].astype(np.int32))
        self._count.append(np.diff(np.append(at, total)).astype(np.int32))
        self._cores.append(np.array(numbers, dtype=np.int32)[which.ravel()])

    def places(self, words: int) -> Places:
        """Return them all; sets of cores have so many ``words``. The pieces go as they are put together."""
        sets = b"".join(self._sets)
        return Places(
            offsets=np.cumsum(_together(self._held), dtype=np.int64),
            first=_together(self._first),
            count=_together(self._count),
            cores=_together(self._cores),
            sets=np.frombuffer(sets, dtype=np.int64).reshape(-1, words),
        )


def _together(pieces: list[Shorts]) -> Shorts:
    """Return pieces as one array, and let go of them."""
    whole = np.concatenate([np.zeros(0, dtype=np.int32), *pieces])
    pieces.clear()
    return whole
