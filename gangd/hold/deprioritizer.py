"""The protocol of all ways of yielding.

The unit is the job, for the kernel weighs *siblings*: a step at low priority inside a job of full priority
gives way to the job's other steps and to no other job. Nothing is frozen, so there is nothing to settle, no
stranger's freeze to respect and no deadly signal to look for: a job that yields can die, be suspended and
launch steps like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from gangd.freezer.holder import Did, Step, StepKey, Write

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


class Deprioritizer(Protocol):
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

    def gather(
        self, jobs: Mapping[int, Pids], alone: Alone = nullcontext, cores: Mapping[int, int] = NO_CORES
    ) -> bool:
        """Bring exactly these jobs within reach of ``hold``, and what came before back to where it was.

        ``cores`` are those that Slurm has allocated to jobs here; one is taken where it is not known.

        Returns whether anything new was found: then more may have been born meanwhile. ``alone`` is entered
        for whatever a plan depends on: closing a file, giving up a record, writing, another weight.
        """

    def adopt(self, steps: tuple[Step, ...]) -> None:
        """Take note of all steps that exist, and forget jobs that have none."""

    def hold(self, job: int) -> Yielded:
        """Let the job yield from now on; what is born in it yields too."""

    def release(self, job: int) -> Yielded:
        """Give the job the priority back that it had."""

    def troubles(self) -> dict[int, str]:
        """Return what could not be brought within reach since the last call, by job."""

    def plan(self, key: StepKey, ours: dict[int, bool], *, holds: bool) -> list[Write] | None:
        """List what ``hold`` or ``release`` of the job of ``key`` would write; None if it is more than that.

        See ``Holder.plan``; the target of each write takes note that it was made.
        """

    def close(self) -> None:
        """Give back what was gathered, and all descriptors. Called when nothing is held any more."""
