"""Clocks, and how long a replay waits for what."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """What a replay knows of time; tests have one that they turn themselves."""

    def wall(self) -> float:
        """Return seconds since the epoch, as Slurm and the jobs stamp them; somebody may set this clock."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never jumps: submissions are paced by it."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The host's clocks."""

    def wall(self) -> float:
        """Return ``time.time()``."""
        return time.time()

    def monotonic(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long, in seconds.

    Attributes
    ----------
    turn_s
        Between two looks at what the user wants.
    poll_s
        Between two questions to Slurm, at least.
    away_s
        Before a submission that did not reach Slurm is tried again.
    look_s
        How long Slurm must have answered, without the job, before a submission that got no answer is made
        again. Slurm's own messages live for MessageTimeout, and may wait in a controller that stands still.
    gone_s
        How long Slurm must have answered without a job, in a row, before the job is lost.
    stamps_s
        How long the stamps of a job that ended well may take to become visible (NFS).
    killed_s
        The same for a job that was killed and may never have written them, and for the second life of one
        whose node failed.
    never_s
        How long a job may wait for a reason that only another job could cure.
    patience_s
        How long a job may wait for a reason that an operator could cure.
    """

    turn_s: float = 0.1
    poll_s: float = 1.0
    away_s: float = 1.0
    look_s: float = 25.0
    gone_s: float = 15.0
    stamps_s: float = 60.0
    killed_s: float = 8.0
    never_s: float = 15.0
    patience_s: float = PATIENCE_S


_LEAST_LOOK_S = 25.0
_MESSAGES = 2.5


def look_back_s(config: Mapping[str, str]) -> float:
    """Return ``look_s`` for a Slurm with this configuration: two messages' lives and a half."""
    words = config.get("MessageTimeout", "").split()
    timeout_s = int(words[0]) if words and words[0].isdecimal() else 10
    return max(_LEAST_LOOK_S, _MESSAGES * timeout_s)
