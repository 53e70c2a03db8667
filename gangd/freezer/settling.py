"""What to do about a freeze that does not take effect: a small pure machine per step.

A task stands still once it gets a core to notice that it must; where others compete for the core that takes
milliseconds. But cgroup v1 can also stick in FREEZING, under storms of fork and exec or while a task is in
uninterruptible sleep. Waiting longer does not help then, a brief thaw often does. So: wait ``patience_ns``,
thaw and freeze again, at most ``retries`` times, then give up and thaw.
Nothing here waits; the caller asks again at ``look_ns``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from gangd.freezer.holder import StepState


class Next(enum.Enum):
    """What the caller does now."""

    WAIT = "wait"
    RETRY = "retry"  # thaw and freeze again
    GIVE_UP = "give_up"  # thaw, report, leave it alone for this slice
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one attempt may take (ns), and how many more follow."""

    patience_ns: int = 100_000_000
    retries: int = 2


@dataclass(frozen=True, slots=True)
class Settling:
    """A freeze that was written at ``since_ns`` (this attempt) and first at ``began_ns``."""

    began_ns: int
    since_ns: int
    attempts: int = 0

    def look_ns(self, now_ns: int) -> int:
        """When to look again: ever more rarely. A task that waits for its core can't stand still sooner."""
        return now_ns + min(50_000_000, max(16_000_000, now_ns - self.since_ns))

    def on_state(self, state: StepState, now_ns: int, patience: Patience) -> tuple[Settling, Next]:
        """Return the successor and what to do, given the state that was found at ``now_ns``."""
        if state in (StepState.FROZEN, StepState.GONE):
            return self, Next.DONE
        if now_ns - self.since_ns < patience.patience_ns:
            return self, Next.WAIT
        if self.attempts < patience.retries:
            return replace(self, since_ns=now_ns, attempts=self.attempts + 1), Next.RETRY
        return self, Next.GIVE_UP
