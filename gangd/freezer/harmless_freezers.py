"""Freezers that freeze nothing: a dry run of any other, and one without processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gangd.freezer.holder import (
    Did,
    Holder,
    HoldOutcome,
    Step,
    StepKey,
    StepState,
    Traits,
    Trouble,
    Unknown,
    WithoutFolders,
)
from gangd.freezer.procfs import WORK


class DryFreezer(WithoutFolders):
    """Wraps ``inner``; ``freeze`` and ``thaw`` change a set in memory and nothing on the host.

    ``state`` shows a step as frozen while we pretend to hold it, so that the agent above behaves as it would.
    """

    def __init__(self, inner: Holder) -> None:
        self.name = inner.name
        self.traits = inner.traits
        self._inner = inner
        self._held: set[StepKey] = set()
        self._known: set[StepKey] = set()

    @property
    def unseen(self) -> frozenset[int]:  # type: ignore[override]
        """See ``Holder``."""
        return self._inner.unseen

    def look(self) -> tuple[Step, ...]:
        """See ``Holder``."""
        return self._inner.look()

    def adopt(
        self, found: tuple[Step, ...], pause: Callable[[], object] = WORK.pause_if_spent
    ) -> tuple[Step, ...]:
        """See ``Holder``."""
        steps = self._inner.adopt(found, pause)
        self._known = {step.key for step in steps}
        self._held &= self._known
        return steps

    def hold(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        return self._pretend(key, hold=True)

    def release(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        return self._pretend(key, hold=False)

    def disown(self, key: StepKey) -> None:
        """See ``Holder``."""
        self._held.discard(key)

    def state(self, key: StepKey) -> StepState:
        """See ``Holder``."""
        real = self._inner.state(key)
        return StepState.FROZEN if key in self._held and real is not StepState.GONE else real

    def pids(self, key: StepKey) -> tuple[int, ...]:
        """See ``Holder``."""
        return self._inner.pids(key)

    def cpu_ns(self, key: StepKey) -> int | None:
        """See ``Holder``."""
        return self._inner.cpu_ns(key)

    def folders(self) -> list[str]:
        """See ``Holder``."""
        return self._inner.folders()

    def unknown(self) -> list[Unknown]:
        """See ``Holder``."""
        return self._inner.unknown()

    def troubles(self) -> list[Trouble]:
        """See ``Holder``."""
        return self._inner.troubles()

    def close(self) -> None:
        """See ``Holder``."""
        self._inner.close()

    def _pretend(self, key: StepKey, *, hold: bool) -> HoldOutcome:
        if key not in self._known:
            return HoldOutcome(key, Did.GONE)
        if (key in self._held) is hold:
            return HoldOutcome(key, Did.NOTHING)
        (self._held.add if hold else self._held.discard)(key)
        return HoldOutcome(key, Did.WROTE)


class RecordingFreezer(WithoutFolders):
    """Steps that exist because the caller says so (``steps`` may be changed at any time).

    Attributes
    ----------
    frozen
        Keys that are frozen now, no matter by which process.
    ours
        Keys that this freezer froze.
    writes
        Every write in order: ``("freeze" | "thaw", key)``.
    """

    name = "recording"
    traits = Traits()

    def __init__(self, steps: Iterable[StepKey] = ()) -> None:
        self.steps: set[StepKey] = set(steps)
        self.frozen: set[StepKey] = set()
        self.ours: set[StepKey] = set()
        self.members: dict[StepKey, tuple[int, ...]] = {}
        self.writes: list[tuple[str, StepKey]] = []
        self._known: set[StepKey] = set()

    def expect(self, jobs: Iterable[int]) -> None:
        """See ``Holder``: pretend that exactly these jobs have a step here each."""
        self.steps = {StepKey(job, "0") for job in jobs}

    def look(self) -> tuple[Step, ...]:
        """See ``Holder``."""
        return tuple(Step(key, None) for key in sorted(self.steps))

    def adopt(self, found: tuple[Step, ...], pause: Callable[[], object] | None = None) -> tuple[Step, ...]:  # noqa: ARG002 - as its protocol has it
        """See ``Holder``."""
        self.frozen &= self.steps
        self.ours &= self.steps
        kept = self.ours - {step.key for step in found}
        steps = found + tuple(Step(key, None) for key in sorted(kept))
        self._known = {step.key for step in steps}
        return steps

    def hold(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        if key not in self._known or key not in self.steps:
            return HoldOutcome(key, Did.GONE)
        if key in self.ours:
            return HoldOutcome(key, Did.NOTHING)
        self.writes.append(("freeze", key))
        self.ours.add(key)
        self.frozen.add(key)
        return HoldOutcome(key, Did.WROTE)

    def release(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        if key not in self._known or key not in self.steps:
            return HoldOutcome(key, Did.GONE)
        if key not in self.ours:
            return HoldOutcome(key, Did.NOTHING)
        self.writes.append(("thaw", key))
        self.ours.discard(key)
        self.frozen.discard(key)
        return HoldOutcome(key, Did.WROTE)

    def disown(self, key: StepKey) -> None:
        """See ``Holder``."""
        self.ours.discard(key)

    def state(self, key: StepKey) -> StepState:
        """See ``Holder``."""
        if key not in self.steps:
            return StepState.GONE
        return StepState.FROZEN if key in self.frozen else StepState.THAWED

    def pids(self, key: StepKey) -> tuple[int, ...]:
        """See ``Holder``."""
        return self.members.get(key, ()) if key in self.steps else ()

    def cpu_ns(self, key: StepKey) -> int | None:  # noqa: ARG002 - as its protocol has it
        """See ``Holder``: nothing runs, so nothing is known."""
        return None

    def close(self) -> None:
        """See ``Holder``."""
