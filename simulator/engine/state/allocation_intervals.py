"""Stretches that have ended: taken out of the log of a state, and kept as columns.

A run of a month may have a million of them, so they become objects only while they are iterated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from simulator.engine.kernels.field_records import Ints
from simulator.engine.state.cluster_view import members, words_of
from simulator.engine.state.lifecycle_state import CAUSES, Lives

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


def take_log(lives: Lives) -> AllocationIntervals | None:
    """Empty the log of either kind of state; return what was in it, None if there was nothing."""
    taken = _taken_compiled(lives) if isinstance(lives.clock, np.ndarray) else _taken_plain(lives)
    return taken if len(taken) else None


def _taken_plain(lives: Lives) -> AllocationIntervals:
    counts, log = lives.clock[0], lives.log
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


def _taken_compiled(lives: Lives) -> AllocationIntervals:
    clock, rows = np.asarray(lives.clock), np.asarray(lives.log.stretches)
    parts, mask = np.asarray(lives.log.parts), np.asarray(lives.log.mask)
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
