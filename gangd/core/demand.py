"""Busy or idle: the demand class of a gang, from samples of all of its nodes, with hysteresis.

A sample is ``(CPU time + run-queue delay) / observed time`` of the gang on one node in one slice in which
it was not held. A gang is as busy as its busiest node: one busy process anywhere makes all of it busy,
and it is idle only when every node was idle in the same slice. CPU time alone proves no progress (an MPI
rank may spin), and its absence in a held slice proves no idleness: held slices are not sampled.

* Idle to busy: ``confirm_samples`` slices with a busy sample, no idle slice between them.
* Busy to idle: a row of idle slices; longer for several processes than for one (they take turns waiting
  for each other), and shorter after a short burst, whose length it follows: a gang that was busy for two
  slices need not be watched for six.
* A gang never seen is presumed busy, and long so.
"""

from __future__ import annotations

from enum import StrEnum

from gangd.core.settings import Settings

OPEN_SLICES = 4
LONG_HISTORY = 64


class Level(StrEnum):
    """Demand class; WAKING is an idle gang that was busy in its last sample."""

    BUSY = "busy"
    WAKING = "waking"
    IDLE = "idle"


class Demand:
    """Demand class of one gang."""

    __slots__ = ("_busy_slice", "_history", "_multi", "_open", "_streak", "level")

    def __init__(self) -> None:
        self.level = Level.BUSY
        self._history = LONG_HISTORY
        self._streak = 0
        self._busy_slice = -1
        self._multi = False
        self._open: dict[int, list[float]] = {}

    def sample(self, number: int, share: float, tasks: int, places: int, settings: Settings) -> bool:
        """Take in what one place saw in slice ``number``; True if the level changed.

        Parameters
        ----------
        number
            Slice.
        share
            Demand there, in cores.
        tasks
            Processes there.
        places
            How many places (jobs times their nodes) the gang has in all.
        """
        before = self.level
        self._multi = self._multi or tasks > 1 or places > 1
        if share > settings.busy_share:
            self._busy(number, settings)
        place = self._open.setdefault(number, [0.0, 0.0])
        place[0] += 1
        place[1] = max(place[1], share)
        if place[0] >= places:
            self._close(number, settings)
        elif len(self._open) > OPEN_SLICES:  # a place without processes sends no samples
            self._close(min(self._open), settings)
        return self.level is not before

    def empty(self) -> bool:
        """No process of the gang is left anywhere, though its job may start others; True if that is news."""
        before = self.level
        self._open.clear()
        self._streak = 0
        self.level = Level.IDLE
        return self.level is not before

    def _busy(self, number: int, settings: Settings) -> None:
        self._streak = 0
        if number <= self._busy_slice:
            return
        self._busy_slice = number
        self._history = min(self._history + 1, LONG_HISTORY)
        if self.level is Level.IDLE:
            self._history = 1
            self.level = Level.WAKING
        if self.level is Level.WAKING and self._history >= settings.confirm_samples:
            self.level = Level.BUSY

    def _close(self, number: int, settings: Settings) -> None:
        share = self._open.pop(number)[1]
        if share >= settings.idle_share or number <= self._busy_slice:
            self._streak = 0
            return
        self._streak += 1
        if self._streak >= self._patience(settings):
            self.level = Level.IDLE

    def _patience(self, settings: Settings) -> int:
        if self.level is Level.WAKING:
            return 1
        most = settings.idle_samples_multi if self._multi else settings.idle_samples
        return min(most, 1 + self._history // 2)
