"""The protocol of all ways of yielding, and both ways of holding in one.

The protocol of all ways of yielding.

The unit is the job, for the kernel weighs *siblings*: a step at low priority inside a job of full priority
gives way to the job's other steps and to no other job. Nothing is frozen, so there is nothing to settle, no
freeze by others to respect and no deadly signal to look for: a job that yields can die, be suspended and
launch steps like any other.

Both ways of holding in one ``Holder``: each job by the way that the plan says, both in one switch.

Steps are found, and their processes read, by the freezer; jobs that yield are brought within the yielder's
reach by ``gather``. A job whose way changes while it is held is held the new way before the old one ends.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType

from gangd.freezer.holder import (
    Did,
    Holder,
    HoldOutcome,
    Step,
    StepKey,
    Write,
)
from gangd.freezer.procfs import WORK

NO_CORES: Mapping[int, int] = MappingProxyType({})
Pids = Callable[[], tuple[int, ...]]
"""Reads the processes of a job anew."""
Alone = Callable[[], AbstractContextManager[None]]
"""Takes the gate's lock and drops what was planned, for as long as it is entered."""


@dataclass(frozen=True, slots=True)
class Yielded:
    """What a call of ``hold`` or ``release`` came to; ``text`` says what went wrong if it failed."""

    did: Did
    text: str | None = None


class Deprioritizer(ABC):
    """One way of making jobs yield.

    The loop's thread alone calls ``gather``, without the gate's lock, for it may take milliseconds. All else
    is called under that lock and is quick; ``hold`` and ``release`` are the switch thread's.

    Attributes
    ----------
    name
        For people.
    weighs
        Whether a job that is within reach weighs as one, however many processes it has.
    """

    name: str
    weighs: bool

    def __init__(self) -> None:
        self._troubles: dict[int, str] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def gather(
        self, jobs: Mapping[int, Pids], alone: Alone = nullcontext, cores: Mapping[int, int] = NO_CORES
    ) -> bool:
        """Bring exactly these jobs within reach of ``hold``, and what came before back to where it was.

        ``cores`` are those that Slurm has allocated to jobs here; one is taken where it is not known.

        Returns whether anything new was found: then more may have been born meanwhile. ``alone`` is entered
        for whatever a plan depends on: closing a file, giving up a record, writing, another weight.
        """

    def adopt(self, steps: tuple[Step, ...]) -> None:  # noqa: B027 - some need not
        """Take note of all steps that exist, and forget jobs that have none."""

    def hold(self, job: int) -> Yielded:
        """Let the job yield from now on; what is born in it yields too."""
        return self._turn(job, low=True)

    def release(self, job: int) -> Yielded:
        """Give the job the priority back that it had."""
        return self._turn(job, low=False)

    def troubles(self) -> dict[int, str]:
        """Return what could not be brought within reach since the last call, by job."""
        found, self._troubles = self._troubles, {}
        return found

    @abstractmethod
    def plan(self, key: StepKey, ours: dict[int, bool], *, holds: bool) -> list[Write] | None:
        """List what ``hold`` or ``release`` of the job of ``key`` would write; None if it is more than that.

        See ``Holder.plan``; the target of each write takes note that it was made.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back what was gathered, and all descriptors. Called when nothing is held any more."""

    @abstractmethod
    def _turn(self, job: int, *, low: bool) -> Yielded: ...


class BothWays:
    """A freezer and a yielder.

    Attributes
    ----------
    freezer, yielder
        What does it.
    yielding
        Jobs that are held by yielding; all others are frozen. Replaced as a whole.
    by_plan
        Those among them that yield for longer than a moment.
    """

    def __init__(self, freezer: Holder, yielder: Deprioritizer) -> None:
        self.name = freezer.name
        self.traits = freezer.traits
        self.freezer = freezer
        self.yielder = yielder
        self.yielding: frozenset[int] = frozenset()
        self.by_plan: frozenset[int] = frozenset()
        self._frozen: set[StepKey] = set()
        self._low: set[int] = set()
        # What yielding does not change:
        self.look, self.folders, self.unknown = freezer.look, freezer.folders, freezer.unknown
        self.troubles, self.state, self.pids = freezer.troubles, freezer.state, freezer.pids
        self.account, self.cpu_ns, self.daemon_ns = freezer.account, freezer.cpu_ns, freezer.daemon_ns

    @property
    def unseen(self) -> frozenset[int]:
        """See ``Holder``."""
        return self.freezer.unseen

    def expect(self, jobs: Iterable[int]) -> None:
        """See ``Holder``: where jobs really yield, nothing is pretended."""

    def adopt(
        self, found: tuple[Step, ...], pause: Callable[[], object] = WORK.pause_if_spent
    ) -> tuple[Step, ...]:
        """See ``Holder``."""
        steps = self.freezer.adopt(found, pause)
        self.yielder.adopt(steps)
        known = {step.key for step in steps}
        self._frozen &= known
        return steps

    def hold(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        if key.job not in self.yielding:
            outcome = self.freezer.hold(key)
            if outcome.did is not Did.GONE:
                self._frozen.add(key)
            self._raise(key.job)
            return outcome
        self._low.add(key.job)
        done = self.yielder.hold(key.job)
        if key in self._frozen:
            thawed = self.freezer.release(key)
            if thawed.did is Did.FAILED:
                return thawed
            self._frozen.discard(key)
        return HoldOutcome(key, done.did, done.text)

    def release(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        done = self._raise(key.job)
        if key not in self._frozen and done.did is not Did.GONE:
            return HoldOutcome(key, done.did, done.text)
        outcome = self.freezer.release(key)
        if outcome.did is not Did.FAILED:
            self._frozen.discard(key)
        return outcome

    def disown(self, key: StepKey) -> None:
        """See ``Holder``. No other process lets a job yield: it gets its priority back."""
        self._raise(key.job)
        self._frozen.discard(key)
        self.freezer.disown(key)

    def freezes(self, key: StepKey) -> bool:
        """Whether a step is held by freezing, as it may be for a moment after its job has begun to yield."""
        return key in self._frozen

    def plan(self, key: StepKey, ours: dict[int, bool], *, holds: bool) -> list[Write] | None:
        """See ``Holder``: of steps that were not held the other way before."""
        if key.job not in self.yielding:
            return None if key.job in self._low else self.freezer.plan(key, ours, holds=holds)
        return None if key in self._frozen else self.yielder.plan(key, ours, holds=holds)

    def note(self, write: Write) -> None:
        """See ``Holder``."""
        write.target.note(write)
        if not write.yields:
            (self._frozen.add if write.holds else self._frozen.discard)(write.key)
        elif write.completes:
            (self._low.add if write.holds else self._low.discard)(write.key.job)

    def control_files(self, key: StepKey) -> tuple[str, ...]:
        """See ``Holder``: of a job that yields by a plan, none matters to us."""
        return () if key.job in self.by_plan else self.freezer.control_files(key)

    def _raise(self, job: int) -> Yielded:
        done = self.yielder.release(job)
        if done.did is not Did.FAILED:
            self._low.discard(job)
        return done

    def close(self) -> None:
        """See ``Holder``."""
        self.yielder.close()
        self.freezer.close()
