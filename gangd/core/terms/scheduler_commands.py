"""What the core wants done. The order of a list of commands matters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from gangd.core.terms.cores import CoreSet
from gangd.core.terms.scheduler_events import HoldMode


@dataclass(frozen=True, slots=True, eq=False)
class TrackMember:
    """A gang in a track: its id, its jobs with their cores, how it is held.

    The same object while nothing changed.
    """

    gang: int
    jobs: tuple[tuple[int, CoreSet], ...]
    hold: HoldMode = HoldMode.FREEZE


@dataclass(frozen=True, slots=True, eq=False)
class TrackPlan:
    """The slices of one group of gangs that contend with each other.

    A track of one gang, which always runs, asks for samples only: it shares cores, and it is idle, wakes,
    or no gang contends with it now.

    Attributes
    ----------
    name
        Least gang id of the group; unique among the tracks in force.
    first_slice
        Slice of the first row of ``run``.
    repeat
        Whether the rows go round; else everything runs past the last one.
    members
        The gangs, by column of ``run``.
    table, rows, column
        Where ``run`` is cut out of a larger array, see ``run``.
    """

    name: int
    first_slice: int
    repeat: bool
    members: tuple[TrackMember, ...]
    table: NDArray[np.bool_]
    rows: list[int]
    column: int

    @property
    def run(self) -> NDArray[np.bool_]:
        """Shape (slices, gangs): True where the gang runs, False where it is held."""
        cut: NDArray[np.bool_] = self.table[self.rows, self.column : self.column + len(self.members)]
        return cut


@dataclass(frozen=True, slots=True)
class Publish:
    """Tracks that begin or change at ``first_slice``, and names of those that end there.

    Slices below ``first_slice`` are final and as published before. With ``rebase`` the slices from
    ``first_slice`` on have a new length: every node needs a whole plan.
    """

    epoch: int
    first_slice: int
    tracks: tuple[TrackPlan, ...]
    drop: tuple[int, ...]
    rebase: bool = False


class ExemptKind(StrEnum):
    """Why jobs are not to be held; see ``gangd.wire.Exempt``."""

    TERMINATING = "terminating"
    SUSPENDED = "suspended"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Exempt:
    """Begin (``on``) or end an exemption of all jobs of a gang, at once and on all of its nodes."""

    member: TrackMember
    kind: ExemptKind
    on: bool


@dataclass(frozen=True, slots=True)
class ThawAll:
    """Thaw everything everywhere, and hold nothing any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class MoveEnd:
    """Set a job's end (wall-clock seconds) later.

    Attributes
    ----------
    end_s
        The end that it is to have.
    due_s
        The end that it has, as far as is known: which of several moves is urgent.
    lost_s
        How much of its time it has lost so far.
    """

    job: int
    end_s: float
    due_s: float
    lost_s: float


@dataclass(frozen=True, slots=True)
class SliceRow:
    """One row of the slice record: what a job did on a node in a slice. ``start_ns`` as in events.

    A row of the role ``unattended`` is of some time, in whole or broken slices, in which no agent acted.
    """

    number: int
    start_ns: int
    length_ns: int
    job: int
    node: str
    role: str  # run, held, leftover, idle, free, unattended
    cpu_us: int | None
    skew_us: int | None
    freeze_us: int | None


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Rows for the slice record."""

    rows: tuple[SliceRow, ...]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something an operator should know. Raised once until ``cleared``.

    ``job`` and ``nodes`` are what caused it, where that is known: ``text`` does not say them again.
    """

    kind: str
    subject: str
    text: str
    cleared: bool = False
    job: int | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskSlurm:
    """Agents saw what the last snapshot does not know: take a new one now."""

    reason: str


@dataclass(frozen=True, slots=True)
class BeganToShare:
    """Jobs of a gang that shares a core with another one: said once of each gang."""

    jobs: tuple[int, ...]


Command = Publish | Exempt | ThawAll | MoveEnd | RecordRows | Alarm | AskSlurm | BeganToShare
