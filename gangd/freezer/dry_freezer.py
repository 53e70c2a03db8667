"""A dry run of any freezer: finds and reads the real steps, and only pretends to freeze them."""

from __future__ import annotations

from gangd.freezer.holder import Did, Holder, Outcome, Step, StepKey, StepState, Unknown, WithoutFolders


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

    def look(self) -> tuple[Step, ...]:
        """See ``Holder``."""
        return self._inner.look()

    def adopt(self, found: tuple[Step, ...]) -> tuple[Step, ...]:
        """See ``Holder``."""
        steps = self._inner.adopt(found)
        self._known = {step.key for step in steps}
        self._held &= self._known
        return steps

    def hold(self, key: StepKey) -> Outcome:
        """See ``Holder``."""
        return self._pretend(key, hold=True)

    def release(self, key: StepKey) -> Outcome:
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

    def close(self) -> None:
        """See ``Holder``."""
        self._inner.close()

    def _pretend(self, key: StepKey, *, hold: bool) -> Outcome:
        if key not in self._known:
            return Outcome(key, Did.GONE)
        if (key in self._held) is hold:
            return Outcome(key, Did.NOTHING)
        (self._held.add if hold else self._held.discard)(key)
        return Outcome(key, Did.WROTE)
