"""Looking after what was left: freezes that do not settle, strangers' writes, deadly signals.

Everything that is found goes into ``ExternalChangeTracker`` (which decides what it means) and into the
report. The caller decides and acts anew afterwards.

``Settling`` says what to do about a freeze that does not take effect; it is a small machine per step, and
nothing in it waits or looks. A task stops once it gets a core to notice the freeze; where others
compete for the core that takes milliseconds. But cgroup v1 can also stick in FREEZING, under storms of fork
and exec or while a task is in uninterruptible sleep. Waiting longer does not help then, a brief thaw often
does. So: wait ``patience_ns``, thaw and freeze again, at most ``retries`` times, then give up and thaw.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gangd.agent.agenda import Agenda, AgendaItem
from gangd.agent.sight.external_changes import Act, ExternalChangeTracker, Sighting
from gangd.agent.sight.steps import StepTable
from gangd.agent.switching.hold_controller import HoldController
from gangd.agent.talk.report_buffer import SliceBook
from gangd.freezer.holder import StepKey, StepState
from gangd.freezer.procfs import WORK, pending_signals, read_stat

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
        """Look at the steps whose control files strangers have written."""
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
            if since_ns is not None and key not in self._settled:
                settling = self._settling.get(key) or Settling(since_ns, now_ns)
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
        """Look for signals that wait for held tasks, and for tasks that a stranger stopped."""
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
