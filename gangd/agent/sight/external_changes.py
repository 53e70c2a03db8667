"""Detects that another process freezes, thaws or kills a job: pure memory of states left and states found.

Slurm suspends with the freeze bit that we use (cgroup v1), thaws to kill, and so may an administrator. What
was left and what is found are compared:

=================  =====================================  ===================================================
we left it         found                                  what follows
=================  =====================================  ===================================================
thawed             frozen                                 ``FROZE``: hands off until it is found thawed
frozen (settled)   thawed                                 ``THAWED``: hands off for ``COOL_NS``
frozen             still frozen, but a stranger wrote     ``FROZE``: it is theirs now, and stays frozen
either             SIGTSTP waits, or tasks are stopped    ``STOPPING``: thaw, hands off for ``STOP_NS``
=================  =====================================  ===================================================

The last row: Slurm sends SIGTSTP two seconds before it suspends; thawing lets the tasks take it, and the
suspension then shows as the first row instead of hiding behind our own freeze.

SIGTERM or SIGKILL that waits for a task of a held step latches the step for ``DYING_NS``: its job is dying
(``ExternalChangeTracker.dying_at``), no matter which process sent it. Slurm says soon whether it is the whole
job that ends. If it is not (a script kills its helper, a step ends in a job that goes on), the latch ends
with the step, or with time; a signal that still waits then is found again. All latches of a job together last
no longer than Slurm's KillWait, for by then Slurm has killed what it wants to end; ``RENEWED_NS`` after the
first it counts anew.
"""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass, field

from gangd.freezer.holder import StepKey, StepState

COOL_NS = 30_000_000_000
STOP_NS = 10_000_000_000
DYING_NS = 10_000_000_000
RENEWED_NS = 3_600_000_000_000
_DEADLY = 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGKILL - 1)
_STOPPING = 1 << (signal.SIGTSTP - 1)


class Act(enum.Enum):
    """What a stranger did to a step."""

    FROZE = "froze"
    THAWED = "thawed"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Sighting:
    """Something new about a step: the stranger's act, and what we had left (``held``)."""

    key: StepKey
    act: Act
    held: bool


@dataclass(slots=True)
class ExternalChangeTracker:
    """What strangers did to the steps of this node, until it is over.

    Attributes
    ----------
    kill_wait_ns
        Slurm's KillWait.
    """

    kill_wait_ns: int = 30_000_000_000
    _first: dict[int, int] = field(default_factory=dict)
    _dying: dict[StepKey, int] = field(default_factory=dict)
    _acts: dict[StepKey, tuple[Act, int]] = field(default_factory=dict)

    @property
    def has_strangers(self) -> bool:
        """Whether a stranger's hand is on any step."""
        return bool(self._acts)

    def strangers(self) -> dict[StepKey, int]:
        """Return the steps with a stranger's hand on them, and since when (ns)."""
        return {key: since_ns for key, (_, since_ns) in self._acts.items()}

    def dying_at(self, now_ns: int) -> frozenset[int]:
        """Return the jobs with a step for which a deadly signal was seen waiting not long ago."""
        return frozenset(
            key.job
            for key, seen_ns in self._dying.items()
            if now_ns < min(seen_ns + DYING_NS, self._first.get(key.job, seen_ns) + self.kill_wait_ns)
        )

    def restless_at(self, now_ns: int) -> frozenset[int]:
        """Return the jobs that are dying, and those with a step that a stranger thawed or wants to stop."""
        acts = {key.job for key, (act, _) in self._acts.items() if act is not Act.FROZE}
        return self.dying_at(now_ns) | acts

    def act_of(self, key: StepKey) -> Act | None:
        """Tell what was done to the step, if anything."""
        entry = self._acts.get(key)
        return None if entry is None else entry[0]

    def on_state(
        self, key: StepKey, state: StepState, now_ns: int, *, ours: bool, settled: bool, written: bool = False
    ) -> Sighting | None:
        """Compare what was found with what was left; returns what is new.

        Parameters
        ----------
        key, state
            The step and the state in which it was found at ``now_ns``.
        ours
            Whether we hold it.
        settled
            Whether our freeze has taken effect before: THAWED then means that another process thawed it.
        written
            Whether another process wrote its control file while we held it.
        """
        act = self.act_of(key)
        if act is not None:
            self._end(key, act, state, now_ns)
            return None
        if not ours:
            return self._note(key, Act.FROZE, now_ns, held=False) if state is StepState.FROZEN else None
        if written and state is not StepState.THAWED:
            return self._note(key, Act.FROZE, now_ns, held=True)
        if state is StepState.THAWED and (settled or written):
            return self._note(key, Act.THAWED, now_ns, held=True)
        return None

    def on_signals(
        self, key: StepKey, pending: int, *, stopped: bool, now_ns: int, ours: bool
    ) -> Sighting | None:
        """Take in the signals that wait for a task of the step, and whether it is stopped (state T)."""
        if pending & _DEADLY:
            self._first = {job: at_ns for job, at_ns in self._first.items() if now_ns < at_ns + RENEWED_NS}
            self._first.setdefault(key.job, now_ns)
            self._dying[key] = now_ns
        if (pending & _STOPPING or stopped) and key not in self._acts:
            return self._note(key, Act.STOPPING, now_ns, held=ours)
        return None

    def forget(self, steps: frozenset[StepKey]) -> None:
        """Drop everything about steps that are gone: it says nothing of the rest of their job."""
        for key in steps:
            self._dying.pop(key, None)
            self._acts.pop(key, None)

    def _end(self, key: StepKey, act: Act, state: StepState, now_ns: int) -> None:
        since_ns = self._acts[key][1]
        if act is Act.FROZE:
            if state is StepState.THAWED:
                del self._acts[key]
        elif state is StepState.FROZEN:
            self._acts[key] = (Act.FROZE, since_ns)
        elif now_ns - since_ns >= (COOL_NS if act is Act.THAWED else STOP_NS):
            del self._acts[key]

    def _note(self, key: StepKey, act: Act, now_ns: int, *, held: bool) -> Sighting:
        self._acts[key] = (act, now_ns)
        return Sighting(key, act, held)
