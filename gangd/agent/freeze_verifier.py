"""Verifies what was left of each step, and detects what other processes did to it.

Looking after what was left: freezes that do not settle, writes of other processes, deadly signals.

Everything that is found goes into ``ExternalChangeTracker`` (which decides what it means) and into the
report. The caller decides and acts anew afterwards.

``Settling`` says what to do about a freeze that does not take effect; it is a small machine per step, and
nothing in it waits or looks. A task stops once it gets a core to notice the freeze; where others
compete for the core that takes milliseconds. But cgroup v1 can also stick in FREEZING, under storms of fork
and exec or while a task is in uninterruptible sleep. Waiting longer does not help then, a brief thaw often
does. So: wait ``patience_ns``, thaw and freeze again, at most ``retries`` times, then give up and thaw.

Detects that another process freezes, thaws or kills a job: pure memory of states left and states found.

Slurm suspends with the freeze bit that we use (cgroup v1), thaws to kill, and so may an administrator. What
was left and what is found are compared:

=================  =====================================  ===================================================
we left it         found                                  what follows
=================  =====================================  ===================================================
thawed             frozen                                 ``FROZE``: hands off until it is found thawed
frozen (settled)   thawed                                 ``THAWED``: hands off for ``COOL_NS``
frozen             still frozen, but another wrote        ``FROZE``: it is theirs now, and stays frozen
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
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gangd.agent.agenda import Agenda, AgendaItem
from gangd.agent.hold_controller import HoldController
from gangd.agent.report_buffer import SliceBook
from gangd.agent.steps import StepTable
from gangd.freezer.holder import StepKey, StepState
from gangd.freezer.procfs import WORK, pending_signals, read_stat

COOL_NS = 30_000_000_000
STOP_NS = 10_000_000_000
DYING_NS = 10_000_000_000
RENEWED_NS = 3_600_000_000_000
_DEADLY = 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGKILL - 1)
_STOPPING = 1 << (signal.SIGTSTP - 1)


class Act(enum.Enum):
    """What another process did to a step."""

    FROZE = "froze"
    THAWED = "thawed"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Sighting:
    """Something new about a step: the act of another process, and what we had left (``held``)."""

    key: StepKey
    act: Act
    held: bool


@dataclass(slots=True)
class ExternalChangeTracker:
    """What other processes did to the steps of this node, until it is over.

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
        """Whether another process has changed any step."""
        return bool(self._acts)

    def external(self) -> dict[StepKey, int]:
        """Return the steps that another process has changed, and since when (ns)."""
        return {key: since_ns for key, (_, since_ns) in self._acts.items()}

    def dying_at(self, now_ns: int) -> frozenset[int]:
        """Return the jobs with a step for which a deadly signal was seen waiting not long ago."""
        return frozenset(
            key.job
            for key, seen_ns in self._dying.items()
            if now_ns < min(seen_ns + DYING_NS, self._first.get(key.job, seen_ns) + self.kill_wait_ns)
        )

    def restless_at(self, now_ns: int) -> frozenset[int]:
        """Return the jobs that are dying, and those with a step that others thawed or want to stop."""
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


REST_OF_SLICE_NS = 2**62
_BREATH_NS = 2_000_000
DOUBT_NS = 1_000_000_000
"""Slurm thaws a step to kill it: only a step still alive after so long was thawed for another reason."""
_PROBES = 8
"""Processes whose signals are looked at in one pass, over all steps; at least one of each."""


class Checks:
    """The agent's second look at the steps of the jobs that the schedule names.

    A freeze that has not settled is looked at again (``AgendaItem.SETTLE``).

    Attributes
    ----------
    stuck
        Steps that must not be frozen again in this slice before an instant (ns).
    """

    def __init__(
        self,
        gate: HoldController,
        table: StepTable,
        memory: ExternalChangeTracker,
        book: SliceBook,
        agenda: Agenda,
        patience: Patience | None = None,
    ) -> None:
        self.stuck: dict[StepKey, int] = {}
        self._gate = gate
        self._agenda = agenda
        self._table = table
        self._memory = memory
        self._book = book
        self._patience = patience or Patience()
        self._settling: dict[StepKey, Settling] = {}
        self._settled: set[StepKey] = set()
        self._doubts: dict[StepKey, int] = {}
        self._sees_stops = gate.holder.traits.stops_are_strange

    def stuck_at(self, now_ns: int) -> frozenset[StepKey]:
        """Return the steps that must not be frozen at ``now_ns``."""
        self.stuck = {key: until_ns for key, until_ns in self.stuck.items() if now_ns < until_ns}
        return frozenset(self.stuck)

    def begin_slice(self, thawed: Iterable[StepKey] = ()) -> None:
        """Forget what concerned the slice that is over; steps that were thawed have to settle anew."""
        self.stuck.clear()
        self._settled.difference_update(thawed)
        for key in thawed:
            self._settling.pop(key, None)

    def on_writes(self, now_ns: int) -> None:
        """Look at the steps whose control files other processes have written."""
        for key in self._gate.strange():
            since_ns = self._gate.frozen_since(key)
            state = self._gate.holder.state(key)
            if self._gate.frozen_since(key) != since_ns:  # a switch came between: the next look tells
                continue
            self._gate.settle(key)
            held = since_ns is not None
            self._note(
                self._memory.on_state(
                    key, state, now_ns, ours=held, settled=key in self._settled, written=held
                ),
                now_ns,
            )

    def watch_files(self) -> bool:
        """Watch the control files of all steps; False if inotify cannot watch some."""
        return self._gate.watch_files(self._table.control_files())

    def on_states(self, keys: Iterable[StepKey], now_ns: int, *, settled: bool = True) -> None:
        """Look at the state of steps, those that we hold included.

        Without ``settled``, only of those that we hold and have not seen to stand still yet.
        """
        self._report_doubts(now_ns)
        frozen = self._frozen()
        self._settling = {
            key: settling for key, settling in self._settling.items() if key in frozen or key in self.stuck
        }
        self._settled &= frozen
        for key in {*keys, *frozen} if settled else frozen - self._settled:
            WORK.pause_if_spent()
            since_ns = self._gate.frozen_since(key)
            state = self._gate.holder.state(key)
            if self._gate.frozen_since(key) != since_ns:  # a switch came between: no other process did this
                continue
            ours = since_ns is not None
            if ours and key not in self._settled:
                settling = self._settling.get(key) or Settling(now_ns)
                if not self._settle(key, settling, state, now_ns):
                    continue
            self._note(
                self._memory.on_state(key, state, now_ns, ours=ours, settled=key in self._settled), now_ns
            )
        self._set_due(now_ns)

    def on_time(self, now_ns: int) -> bool:
        """Look again at freezes that have not settled; returns whether something must be done anew."""
        before = dict(self.stuck)
        frozen = self._frozen()
        for key, settling in list(self._settling.items()):
            if key in frozen:
                self._settle(key, settling, self._gate.holder.state(key), now_ns)
        rested = self.stuck_at(now_ns) != before.keys()
        self._set_due(now_ns)
        return rested

    def _frozen(self) -> set[StepKey]:
        """Return the steps that we hold by freezing them; what yields has nothing to settle."""
        return {key for key in self._gate.held if self._gate.frozen_since(key) is not None}

    def _set_due(self, now_ns: int) -> None:
        times = [each.look_ns(now_ns) for each in self._settling.values()]
        times += [until_ns for until_ns in self.stuck.values() if until_ns < REST_OF_SLICE_NS]
        if times:
            self._agenda.set(AgendaItem.SETTLE, min(times))
        else:
            self._agenda.strike(AgendaItem.SETTLE)

    def on_signals(self, keys: list[StepKey], now_ns: int) -> None:
        """Look for signals that wait for held tasks, and for tasks that another process stopped."""
        count = max(1, _PROBES // max(1, len(keys)))
        known = self._memory.dying_at(now_ns)
        for key in keys:
            WORK.pause_if_spent()
            ours = self._gate.frozen_since(key) is not None
            pids = self._table.probe(key, count)
            pending, stopped = 0, False
            if ours:
                for pid in pids:
                    pending |= pending_signals(pid)
            elif pids and self._sees_stops:
                stats = [read_stat(pid) for pid in pids]
                stopped = all(stat is not None and stat.state == "T" for stat in stats)
            self._note(
                self._memory.on_signals(key, pending, stopped=stopped, now_ns=now_ns, ours=ours), now_ns
            )
        self._book.on_dying(self._memory.dying_at(now_ns) - known)

    def _settle(self, key: StepKey, settling: Settling, state: StepState, now_ns: int) -> bool:
        """Follow a freeze until it has taken effect; returns whether it has."""
        settling, following = settling.on_state(state, now_ns, self._patience)
        if following is Next.DONE:
            self._settling.pop(key, None)
            self._settled.add(key)
            return True
        self._settling[key] = settling
        if following is Next.RETRY:
            # A thaw and a freeze in one breath change nothing: it is frozen again a moment later.
            self._gate.apply((), (key,))
            self.stuck[key] = now_ns + _BREATH_NS
            self._book.on_fault("freeze_retried", f"step {key} did not freeze", key.job)
        elif following is Next.GIVE_UP:
            del self._settling[key]
            self.stuck[key] = REST_OF_SLICE_NS
            self._book.on_fault("freeze_failed", f"step {key} does not freeze and runs this slice", key.job)
        return False

    def _report_doubts(self, now_ns: int) -> None:
        """Report steps that were thawed under us and live on: it was not their end that thawed them."""
        dying = self._memory.dying_at(now_ns)
        for key in [key for key, due_ns in self._doubts.items() if now_ns >= due_ns]:
            del self._doubts[key]
            if self._table.has_processes(key) and key.job not in dying:
                self._book.on_found(key.job, "frozen", Act.THAWED.value)

    def _note(self, sighting: Sighting | None, now_ns: int) -> None:
        if sighting is None:
            return
        if sighting.act is Act.THAWED:
            self._doubts[sighting.key] = now_ns + DOUBT_NS
        else:
            self._book.on_found(sighting.key.job, "frozen" if sighting.held else "thawed", sighting.act.value)
        if sighting.held and sighting.act is Act.FROZE:
            self._gate.disown((sighting.key,))
        elif sighting.held:
            self._gate.apply((), (sighting.key,))


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
    """A freeze that was written at ``since_ns`` in this attempt."""

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
