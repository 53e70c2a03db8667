"""What jobs hold and held: the cluster as plug-ins see it, intervals that have ended, ranges of nodes.

The cluster as plug-ins in plain Python see it, and what plain Python reads from a state.

Stretches that have ended: taken out of the log of a state, and kept as columns.

A run of a month may have a million of them, so they become objects only while they are iterated.

Where jobs ran, as ranges of neighbouring nodes.

A job of a thousand nodes mostly has neighbours, and the same cores on each: one range instead of a thousand
parts. Of a log of a year that is a twentieth of the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from simulator.jit.field_records import IntegerGrid, Ints
from simulator.state.engine_state import NEVER, EngineState, NodeClassRecord
from simulator.state.lifecycle_state import CAUSES, LifecycleTables
from simulator.state.node_sets import WORD_BITS, has


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


def class_at(state: EngineState, node: int) -> NodeClassRecord:
    """Return the class of a node, which says what holds for each of its nodes."""
    return state.classes[state.class_of[node]]


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
        node_class = self.state.class_of[node]
        if has(self.state.barred, node) or self.state.classes[node_class].owner not in (NEVER, self.asking):
            return np.full(self.cores, self.multiplicity, dtype=np.int64)
        counts = np.zeros(self.cores, dtype=np.int64)
        for level in range(self.multiplicity):
            counts[members(words_of(self.state.occupied, node_class, level))] += 1
        return counts

    def free_memory_kib(self, node: int) -> int:
        """Return the memory of ``node`` that no job holds."""
        return class_at(self.state, node).free_kib

    def holders(self, node: int) -> dict[int, list[int]]:
        """Return the core ids that each job on ``node`` holds, by job index."""
        state = self.state
        node_class = state.class_of[node]
        pieces = [state.listed[node_class, place] for place in range(class_at(state, node).listed)]
        return {state.pieces[piece].job: members(words_of(state.piece_cores, piece)) for piece in pieces}

    def cores_of(self, job: int) -> dict[int, list[int]]:
        """Return the core ids by node that the parts of the job with index ``job`` name."""
        state = self.state
        return {state.parts[part].node: members(words_of(state.mask, part)) for part in parts_of(state, job)}


_COLUMNS = ("job", "from_us", "to_us", "why", "nodes", "setup_us", "lost_us")


@dataclass(frozen=True, slots=True)
class AllocationInterval:
    """What a job, by index, held from when to when (core ids by node), and what that began with.

    ``setup_us`` of it went on set-up. At its end ``lost_us`` of work, of this stretch and of those before,
    were lost; one that holds nothing tells of the loss alone.
    """

    job: int
    from_us: int
    to_us: int
    cores: Mapping[int, list[int]]
    why: str
    setup_us: int = 0
    lost_us: int = 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AllocationIntervals:
    """Stretches in order of their ends, as columns of length S; see ``AllocationInterval``.

    Parameters
    ----------
    job, from_us, to_us, setup_us, lost_us
        What they say.
    why
        An index into ``CAUSES``.
    nodes
        How many nodes each holds.
    node, mask
        Which they are, and the set of cores on each, one stretch after the other; shapes (parts,) and (parts,
        words).
    """

    job: Ints
    from_us: Ints
    to_us: Ints
    why: Ints
    nodes: Ints
    setup_us: Ints
    lost_us: Ints
    node: npt.NDArray[np.int32]
    mask: Ints

    def __len__(self) -> int:
        return len(self.job)

    @property
    def part_at(self) -> Ints:
        """Where the parts of each stretch begin, and the number of parts; shape (S + 1,)."""
        return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.nodes)))

    def __iter__(self) -> Iterator[AllocationInterval]:
        part_at = self.part_at.tolist()
        for place in range(len(self)):
            parts = range(part_at[place], part_at[place + 1])
            yield AllocationInterval(
                job=int(self.job[place]),
                from_us=int(self.from_us[place]),
                to_us=int(self.to_us[place]),
                cores={int(self.node[part]): members(self.mask[part]) for part in parts},
                why=CAUSES[int(self.why[place])],
                setup_us=int(self.setup_us[place]),
                lost_us=int(self.lost_us[place]),
            )


def take_log(lifecycles: LifecycleTables) -> AllocationIntervals | None:
    """Empty the log of either kind of state; return what was in it, None if there was nothing."""
    taken = (
        _taken_compiled(lifecycles) if isinstance(lifecycles.clock, np.ndarray) else _taken_plain(lifecycles)
    )
    return taken if len(taken) else None


def _taken_plain(lifecycles: LifecycleTables) -> AllocationIntervals:
    counts, log = lifecycles.clock[0], lifecycles.log
    rows = [log.stretches[place] for place in range(counts.logged)]
    parts = range(counts.parts_logged)
    counts.logged = counts.parts_logged = 0
    return AllocationIntervals(
        **{name: np.array([getattr(row, name) for row in rows], dtype=np.int64) for name in _COLUMNS},
        node=np.array([log.parts[part].node for part in parts], dtype=np.int32),
        mask=np.array([words_of(log.mask, part) for part in parts], dtype=np.int64).reshape(
            len(parts), log.mask.shape[1]
        ),
    )


def _taken_compiled(lifecycles: LifecycleTables) -> AllocationIntervals:
    clock, rows = np.asarray(lifecycles.clock), np.asarray(lifecycles.log.stretches)
    parts, mask = np.asarray(lifecycles.log.parts), np.asarray(lifecycles.log.mask)
    logged, parts_logged = int(clock["logged"][0]), int(clock["parts_logged"][0])
    clock["logged"] = clock["parts_logged"] = 0
    return AllocationIntervals(
        **{name: rows[name][:logged].copy() for name in _COLUMNS},
        node=parts["node"][:parts_logged].copy(),
        mask=mask[:parts_logged].copy(),
    )


def joined(pieces: Sequence[AllocationIntervals], words: int) -> AllocationIntervals:
    """Return pieces of a log as one; sets of cores have so many ``words``."""
    if not pieces:
        none = np.zeros(0, dtype=np.int64)
        return AllocationIntervals(
            **dict.fromkeys(_COLUMNS, none), node=none.astype(np.int32), mask=none.reshape(0, words)
        )
    return AllocationIntervals(
        **{
            field.name: np.concatenate([getattr(piece, field.name) for piece in pieces])
            for field in fields(AllocationIntervals)
        }
    )


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
