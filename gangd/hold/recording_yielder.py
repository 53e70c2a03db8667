"""A yielder without processes: remembers which jobs yield, for tests of the agent."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from gangd.freezer.holder import Did, Step, StepKey, Write
from gangd.hold.yielder import Alone, Pids, Yielded


class RecordingYielder:
    """Jobs are within reach as soon as they are gathered.

    Attributes
    ----------
    low
        Jobs that yield now.
    gathered
        Jobs within reach, and the processes that they had.
    writes
        Every change in order: ``("low" | "normal", job)``.
    """

    name = "recording"
    weighs = True

    def __init__(self) -> None:
        self.low: set[int] = set()
        self.gathered: dict[int, tuple[int, ...]] = {}
        self.writes: list[tuple[str, int]] = []

    def gather(self, jobs: Mapping[int, Pids], alone: Alone = nullcontext) -> bool:  # noqa: ARG002 - as its protocol has it
        """See ``Yielder``."""
        found = {job: pids() for job, pids in jobs.items()}
        new = any(set(pids) - set(self.gathered.get(job, ())) for job, pids in found.items())
        self.gathered = found
        self.low &= found.keys()
        return new

    def adopt(self, steps: tuple[Step, ...]) -> None:
        """See ``Yielder``."""

    def hold(self, job: int) -> Yielded:
        """See ``Yielder``."""
        return self._turn(job, low=True)

    def release(self, job: int) -> Yielded:
        """See ``Yielder``."""
        return self._turn(job, low=False)

    def plan(self, key: StepKey, ours: dict[int, bool], *, holds: bool) -> list[Write] | None:  # noqa: ARG002 - as its protocol has it
        """See ``Yielder``: there are no files to write."""
        return None

    def troubles(self) -> dict[int, str]:
        """See ``Yielder``."""
        return {}

    def close(self) -> None:
        """See ``Yielder``."""

    def _turn(self, job: int, *, low: bool) -> Yielded:
        if job not in self.gathered:
            return Yielded(Did.GONE)
        if (job in self.low) is low:
            return Yielded(Did.NOTHING)
        (self.low.add if low else self.low.discard)(job)
        self.writes.append(("low" if low else "normal", job))
        return Yielded(Did.WROTE)
