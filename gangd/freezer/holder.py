"""The protocol of all ways of holding steps, and the values that travel through it.

A holder knows *steps*: the tasks of one job step on this node. ``hold`` makes a step stand back (a freezer
freezes it) and ``release`` lets it run as before. Both only write (they
run in the switch thread and take microseconds); whether a freeze took effect, ``state`` shows afterwards, and
tasks that were born meanwhile are caught by the next ``look``, ``adopt`` and ``hold``. What vanishes
meanwhile is a value (``StepState.GONE``, ``Did.GONE``), never an exception.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from gangd.freezer.procfs import WORK


@dataclass(frozen=True, slots=True, order=True)
class StepKey:
    """Name of a step on this node: raw Slurm job id, and step name (``0``, ``batch``, ``extern`` ...)."""

    job: int
    step: str

    def __str__(self) -> str:
        return f"{self.job}.{self.step}"


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was found: its key, its user if known, and where its tasks are (relative to the root).

    ``is_empty``: there is no place for tasks yet (cgroup v2), as it is being launched, or no more.
    """

    key: StepKey
    uid: int | None
    paths: tuple[str, ...] = ()
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """A folder of Slurm's with processes that is no step of a known job, and why not."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a job's steps, as a fault of this ``kind``."""

    kind: str
    job: int
    text: str


class StepState(enum.Enum):
    """State of a step's tasks, as the kernel tells it."""

    THAWED = "thawed"
    FREEZING = "freezing"  # some tasks do not stand still yet
    FROZEN = "frozen"
    GONE = "gone"  # no such step any more


class Did(enum.Enum):
    """What a call of ``hold`` or ``release`` came to."""

    WROTE = "wrote"
    NOTHING = "nothing"  # it was so already: only differences are written
    GONE = "gone"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class HoldOutcome:
    """Result of a hold or release of one step; ``text`` says what went wrong if it failed."""

    key: StepKey
    did: Did
    text: str | None = None


class WriteTarget(Protocol):
    """What a planned write is about: it knows what follows from its having been made."""

    def note(self, write: Write) -> None:
        """Take note that a planned write was made, its mark in the ledger included."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a switch.

    Attributes
    ----------
    key
        The step.
    holds
        Whether it holds or releases.
    fd, data
        What is written where.
    slot
        Its mark in the ledger: set before a write that holds, taken back after one that releases.
    target
        Whose state this is.
    completes
        Whether this is the last write of its release: only then the mark is taken back.
    yields
        Whether it is the step's job that yields by it.
    """

    key: StepKey
    holds: bool
    fd: int
    data: bytes
    slot: int
    target: WriteTarget
    completes: bool = True
    yields: bool = False


@dataclass(frozen=True, slots=True)
class CpuTimeFile:
    """An open file that has CPU time used so far.

    Attributes
    ----------
    fd
        The file, good until the next ``adopt``.
    in_lines
        Whether it has lines, of which ``usage_usec N`` counts (v2), or one number of ns (v1).
    """

    fd: int
    in_lines: bool


class Ledger(Protocol):
    """Crash-safe memory of what is ours to release; written *before* the hold that it records.

    At any instant what a holder holds is a subset of what its ledger lists as held.

    Slots are numbers; ``claim_*`` returns None when the ledger is full, and what has no slot must not be
    held. ``hold`` and ``release`` flip a flag in memory and neither block nor allocate.
    """

    def claim_cgroup(self, kind: int, path: str, job: int) -> int | None:
        """Reserve a slot for the cgroup ``path`` (relative to its hierarchy's root)."""

    def claim_process(self, pid: int, start_ticks: int, job: int) -> int | None:
        """Reserve a slot for a process, named so that a reused pid is never taken for it."""

    def claim_idle(self, pid: int, start_ticks: int, job: int) -> int | None:
        """Reserve a slot for a process whose threads are to get another scheduling policy."""

    def hold(self, slot: int) -> None:
        """Record that the slot is about to be held by us."""

    def release(self, slot: int) -> None:
        """Record that the slot is no longer held by us."""

    def drop(self, slot: int) -> None:
        """Give the slot back: what it named is gone."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What those who use a holder have to know of it.

    Attributes
    ----------
    in_folders
        Steps are found in folders, where inotify tells of what comes, goes and is written.
    searches_processes
        A look goes through all processes of the host, and so costs more than one at folders.
    stops_are_strange
        It never stops a task: one that is stopped (state T) was stopped by another process.
    """

    in_folders: bool = False
    searches_processes: bool = False
    stops_are_strange: bool = False


class Holder(Protocol):
    """One way of holding steps.

    Two threads share a holder: one looks, adopts and reads, the other only holds and releases at
    a slice's instant. ``look``, ``folders``, ``unknown``, ``expect``, ``state``, ``pids`` and ``cpu_ns``
    change nothing on the host and may take milliseconds; everything else is called under one lock and is
    quick.

    Holds and releases that are writes to open files can be listed beforehand (``plan``). What was listed is
    dropped before anything else is called under the lock, or closed.
    """

    name: str
    traits: Traits

    @property
    def unseen(self) -> frozenset[int]:
        """Jobs of which something could not be opened at the last ``adopt``, as descriptors are used up."""

    def expect(self, jobs: Iterable[int]) -> None:
        """Learn which jobs the schedule names; of use only to who pretends that they have steps."""

    def folders(self) -> list[str]:
        """Folders in which jobs and steps come and go, as of the last look; for inotify."""

    def unknown(self) -> list[Unknown]:
        """Folders of Slurm's in which something runs that belongs to no job that we know of."""

    def troubles(self) -> list[Trouble]:
        """Return what is wrong with known steps, beyond what a hold or a release would find."""

    def look(self) -> tuple[Step, ...]:
        """Find the steps that exist now; changes nothing."""

    def adopt(
        self, found: tuple[Step, ...], pause: Callable[[], object] = WORK.pause_if_spent
    ) -> tuple[Step, ...]:
        """Make the steps of ``look`` known to the other methods; returns all that are known.

        Others are forgotten, but never what we hold: that stays known until it is released or gone.
        ``pause`` is called once an item; meanwhile the other thread may hold and release.
        """

    def hold(self, key: StepKey) -> HoldOutcome:
        """Begin to hold the tasks of a step that are not held by us yet."""

    def release(self, key: StepKey) -> HoldOutcome:
        """Let the tasks that we hold run as before; others stay as they are."""

    def disown(self, key: StepKey) -> None:
        """Forget that we hold the step, and leave it as it is: another process holds it now."""

    def state(self, key: StepKey) -> StepState:
        """State of a step now, no matter which process caused it."""

    def pids(self, key: StepKey) -> tuple[int, ...]:
        """Return the processes of the step; empty if it is gone."""

    def cpu_ns(self, job: int) -> int | None:
        """CPU time of a job from its accounting cgroup, ended steps included; None without one."""

    def daemon_ns(self, job: int) -> int:
        """CPU time of the daemons of Slurm's that launch the job's steps, where ``cpu_ns`` has it not."""

    def control_files(self, key: StepKey) -> tuple[str, ...]:
        """Absolute paths of the files whose modification by others matters (empty if there are none)."""

    def plan(self, key: StepKey, ours: dict[int, bool], *, holds: bool) -> list[Write] | None:
        """List what ``hold`` or ``release`` would write; None if it is more than that.

        Parameters
        ----------
        key
            The step.
        ours
            By slot, what an earlier part of the same plan leaves held; brought up to date.
        holds
            Which of the two.
        """

    def note(self, write: Write) -> None:
        """Take note that a planned write was made, its mark in the ledger included."""

    def account(self, job: int) -> CpuTimeFile | None:
        """Return the file that ``cpu_ns`` reads; None where it tells nothing."""

    def close(self) -> None:
        """Release file descriptors; what is held stays held, and in the ledger."""


class WithoutFolders:
    """What a holder answers that finds its steps in no folders and writes to no files."""

    unseen: frozenset[int] = frozenset()

    def expect(self, jobs: Iterable[int]) -> None:
        """See ``Holder``: steps are found, not expected."""

    def folders(self) -> list[str]:
        """See ``Holder``: there are none."""
        return []

    def unknown(self) -> list[Unknown]:
        """See ``Holder``: there are none."""
        return []

    def troubles(self) -> list[Trouble]:
        """See ``Holder``: none are known."""
        return []

    def control_files(self, key: StepKey) -> tuple[str, ...]:  # noqa: ARG002 - as its protocol has it
        """See ``Holder``: there are none."""
        return ()

    def plan(self, key: StepKey, ours: dict[int, bool], *, holds: bool) -> list[Write] | None:  # noqa: ARG002 - as its protocol has it
        """See ``Holder``: it is always more than writes."""
        return None

    def note(self, write: Write) -> None:
        """See ``Holder``: nothing was planned."""

    def account(self, job: int) -> CpuTimeFile | None:  # noqa: ARG002 - as its protocol has it
        """See ``Holder``: there is none."""
        return None

    def daemon_ns(self, job: int) -> int:  # noqa: ARG002 - as its protocol has it
        """See ``Holder``: none are known."""
        return 0
