"""Busy or idle: the demand class of a gang, from samples of all of its nodes, with hysteresis.

A sample is ``(CPU time + run-queue delay) / observed time`` of the gang on one node: in one slice in which
it was not frozen, or, while it shares no core, over the second since the last one. A gang is as busy as
its busiest node: one busy process anywhere makes all of it busy, and it is idle only when every node was
idle in the same slice. CPU time alone proves no progress (an MPI rank may spin), and its absence while
frozen proves no idleness: such slices are not sampled. A gang that yields is sampled in all slices.

* Idle to busy: ``confirm_samples`` slices with a busy sample, no idle slice between them.
* Busy to idle, one process: one idle slice. A gang that flaps, for it comes back soon after each rest, as
  a program does that waits for its files, needs a longer row each time.
* Busy to idle, several processes: a row of idle slices, for they take turns waiting for each other; shorter
  after a short burst, whose length it follows: one that was busy for two slices need not be watched for six.
* A gang never seen is presumed busy, and long so. What was seen of it while it was alone counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from gangd.core.gang_settings import CoreSettings

OPEN_SLICES = 4
LONG_HISTORY = 64
SOON_SLICES = 16
MOST_FLAPS = 8


class Level(StrEnum):
    """Demand class; WAKING is an idle gang that was busy in its last sample."""

    BUSY = "busy"
    WAKING = "waking"
    IDLE = "idle"


_LEVELS = {level.value: level for level in Level}


@dataclass(slots=True, eq=False)
class Demand:
    """Demand class of one gang."""

    level: Level = Level.BUSY
    _history: int = LONG_HISTORY
    _streak: int = 0
    _busy_slice: int = -1
    _rested_slice: int | None = None
    _flaps: int = 0
    _multi: bool = False
    _open: dict[int, list[float]] = field(default_factory=dict)
    _alone: dict[tuple[int, int], float] = field(default_factory=dict)

    def describe(self) -> tuple[str, int, int, bool]:
        """Return what ``recall`` needs: level, history, flaps, whether there are several processes."""
        return self.level.value, self._history, self._flaps, self._multi

    def recall(self, level: str, history: int, flaps: int, *, multi: bool) -> None:
        """Begin with what was known before; a level that is none leaves what is presumed."""
        if level in _LEVELS:
            self.level = _LEVELS[level]
            self._history = min(max(history, 0), LONG_HISTORY)
            self._flaps = min(max(flaps, 0), MOST_FLAPS)
            self._multi = multi

    def sample(self, number: int, share: float, tasks: int, places: int, settings: CoreSettings) -> bool:
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
        self._alone.clear()
        self._multi = self._multi or tasks > 1 or places > 1
        if share > settings.busy_share:
            self._busy(number, settings)
            if places == 1 and number not in self._open:  # the usual: no other node is waited for
                return self.level is not before
        place = self._open.setdefault(number, [0.0, 0.0])
        place[0] += 1
        place[1] = max(place[1], share)
        if place[0] >= places:
            self._close(number, settings)
        elif len(self._open) > OPEN_SLICES:  # a place without processes sends no samples
            self._close(min(self._open), settings)
        return self.level is not before

    def alone(
        self, place: tuple[int, int], share: float, tasks: int, places: int, settings: CoreSettings
    ) -> bool:
        """Take in what one place (job, node) saw since its last report while the gang shared no core.

        The gang is idle once the last of all its places was idle, and busy as soon as one is; True if the
        level changed.
        """
        before = self.level
        self._open.clear()
        self._streak = 0
        self._multi = self._multi or tasks > 1 or places > 1
        self._alone[place] = share
        if share > settings.busy_share:
            self.level, self._history = Level.BUSY, LONG_HISTORY
        elif len(self._alone) >= places and max(self._alone.values()) < settings.idle_share:
            self.level = Level.IDLE
        return self.level is not before

    def empty(self) -> bool:
        """No process of the gang is left anywhere, though its job may start others; True if that is news."""
        before = self.level
        self._open.clear()
        self._alone.clear()
        self._streak = 0
        self.level = Level.IDLE
        return self.level is not before

    def _busy(self, number: int, settings: CoreSettings) -> None:
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
            self._note_flap(number)

    def _note_flap(self, number: int) -> None:
        soon = self._rested_slice is not None and number - self._rested_slice <= SOON_SLICES
        self._flaps = min(self._flaps + 1, MOST_FLAPS) if soon else 0

    def _close(self, number: int, settings: CoreSettings) -> None:
        share = self._open.pop(number)[1]
        if share >= settings.idle_share or number <= self._busy_slice:
            self._streak = 0
            return
        self._streak += 1
        if self._streak >= self._patience(settings):
            if self.level is Level.BUSY and self._busy_slice >= 0:  # and not merely presumed to be
                self._rested_slice = number
            self.level = Level.IDLE

    def _patience(self, settings: CoreSettings) -> int:
        """Idle slices in a row that let the gang be idle."""
        if self.level is Level.WAKING:
            return 1
        if not self._multi:
            return min(settings.idle_samples, 1 + self._flaps)
        return min(settings.idle_samples_multi, 1 + self._history // 2 + self._flaps)
