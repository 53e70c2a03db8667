"""The only place where anything is frozen: lease checked before and after, everything under one lock.

Both threads come through here, so a thaw for a dying job and the switch thread's prepared freeze can't
cross. The ledger learns of a freeze before it is written (the holder sees to that).

Switches that are nothing but writes may be made by native code (``planned_switches``), under the same lock.
The next caller here notes its switches first; any other act here voids the switches
still planned.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gangd.agent.linux_host import FileWatch
from gangd.agent.native import NativeSwitch
from gangd.agent.planned_switches import Applied, NativeSwitches, PreparedSwitch, Switched
from gangd.daemon_process import drained
from gangd.freezer.holder import Did, Holder, HoldOutcome, Step, StepKey, Write
from gangd.freezer.procfs import WORK
from gangd.guardian.statefile import StateFile, Word
from gangd.hold.deprioritizer import BothWays


class Lease:
    """How long anything may be held, in the state file where the guardian sees it too."""

    def __init__(self, state: StateFile | None) -> None:
        self._state = state
        self._until_ns = 0

    def until_ns(self) -> int:
        """Instant (agent's clock) at which everything must be thawed; 0 for at once."""
        return self._until_ns

    def set_until(self, until_ns: int) -> None:
        """Renew or end the lease."""
        self._until_ns = until_ns
        if self._state is not None:
            self._state.set_word(Word.LEASE_NS, until_ns)

    def trips(self) -> int:
        """How often another process (guardian, operator) thawed what we hold."""
        return 0 if self._state is None else self._state.word(Word.GUARDIAN_TRIPS)

    def valid(self, now_ns: int) -> bool:
        """Whether anything may be held at ``now_ns``."""
        paused_until_ns = 0 if self._state is None else self._state.word(Word.PAUSED_UNTIL_NS)
        return paused_until_ns <= now_ns < self._until_ns


class HoldController:
    """Holds and releases steps through one holder, while the lease allows it.

    Attributes
    ----------
    held
        Steps that we hold, and since when (ns). Replaced as a whole, never changed: a reader may
        iterate over it, while the other thread holds or thaws.
    turn
        Counts switches: what was decided before a switch must not be applied after it.
    watch
        Reports which control files were written; None where that is unknown.
    yielding
        Jobs that yield when they are held; see ``let_yield``.
    changes
        Counts what voids a plan for native code.

    Parameters
    ----------
    holder
        What holds.
    lease
        How long anything may be held.
    clock
        The agent's clock.
    watch
        See above.
    native
        Native code that makes those switches for which the holder lists the writes; None for none.
    """

    def __init__(
        self,
        holder: Holder,
        lease: Lease,
        clock: Callable[[], int] = time.monotonic_ns,
        watch: FileWatch | None = None,
        native: NativeSwitch | None = None,
    ) -> None:
        self.holder = holder
        self.lease = lease
        self._shown: Mapping[StepKey, int] = {}
        self._held: dict[StepKey, int] = {}
        self.turn = 0
        self._barred: frozenset[int] = frozenset()
        self.watch = watch
        self._strange: set[StepKey] = set()
        self._clock = clock
        self.yielding: frozenset[int] = frozenset()
        self.native = native
        self._ahead = None if native is None else NativeSwitches(native, holder)
        self.changes = 0
        self._made: collections.deque[Switched] = collections.deque()
        self._begun: frozenset[int] = frozenset()
        self._lock: threading.Lock | NativeSwitch = self.native or threading.Lock()

    @property
    def held(self) -> Mapping[StepKey, int]:
        """See the class."""
        self._take_note()
        return self._shown

    @property
    def held_lately(self) -> Mapping[StepKey, int]:
        """What was held when anybody was last here; ``held`` costs more after a switch of native code."""
        return self._shown

    def frozen_since(self, key: StepKey) -> int | None:
        """Since when we hold a step by freezing it (ns); None if we do not."""
        since_ns, holder = self.held.get(key), self.holder
        return since_ns if not isinstance(holder, BothWays) or holder.freezes(key) else None

    @property
    def has_made(self) -> bool:
        """Whether ``take_made`` has something to return."""
        return bool(self._made) or (self._ahead is not None and self._ahead.is_ahead)

    def take_made(self) -> list[Switched]:
        """Return what native code has made since the last call, oldest first."""
        self._take_note()
        return drained(self._made)

    def bar(self, jobs: frozenset[int]) -> None:
        """Freeze no step of these jobs from now on, whatever was prepared; does not thaw."""
        if jobs != self._barred:
            with self.alone():
                self._barred = jobs

    def let_yield(self, jobs: frozenset[int]) -> None:
        """Note which jobs yield when they are held; what was planned to hold them otherwise is dropped."""
        if jobs != self.yielding:
            with self.alone():
                now_ns = self._clock()
                for key in self._held:
                    if (key.job in jobs) is not (key.job in self.yielding):
                        self._held[key] = now_ns  # it is held anew, the other way
                self._shown = self._held.copy()
                self.yielding = jobs

    @contextmanager
    def alone(self, *, changes: bool = True) -> Iterator[None]:
        """Keep everybody off the steps, with nothing planned if that ``changes`` what a plan depends on.

        What native code has made by then is noted.
        """
        with self._lock:
            if self._ahead is not None:
                self._catch_up(self._ahead)
            if changes:
                self._void()
            yield

    def plan(self, choose: Callable[[], Sequence[PreparedSwitch]]) -> int:
        """Let native code make what is due, soonest first, up to the first that is more than writes.

        ``choose`` is called when nothing can be made meanwhile, and returns what is due. Returned are the
        ``changes`` up to which the plan counts.
        """
        with self.alone():
            queue = choose()
            if self._ahead is not None and not self._strange:
                self._plan(self._ahead, queue)
            return self.changes

    def _plan(self, ahead: NativeSwitches, queue: Sequence[PreparedSwitch]) -> None:
        held, ours = set(self._held), dict[int, bool]()
        for place, prepared in enumerate(queue):
            freeze = tuple(key for key in prepared.freeze if key.job not in self._barred)
            held = held.union(freeze).difference(prepared.thaw)
            following_ns = queue[place + 1].instant_ns if place + 1 < len(queue) else 0
            if not ahead.push(prepared, freeze, following_ns, ours, held_after=bool(held)):
                return

    def apply(
        self,
        freeze: Iterable[StepKey],
        thaw: Iterable[StepKey],
        *,
        turn: int | None = None,
        next_turn: bool = False,
    ) -> Applied:
        """Freeze, then thaw. Without a valid lease nothing is frozen and all that we hold is thawed.

        Parameters
        ----------
        freeze, thaw
            The steps.
        turn
            The turn for which the lists were made; if another has begun since, nothing is done.
        next_turn
            Whether this begins a new turn: the switch thread says so.
        """
        with self.alone():
            begin_ns = self._clock()
            if turn is not None and turn != self.turn:
                return Applied(begin_ns, begin_ns, begin_ns, (), refused=False)
            self.turn += next_turn
            self._see()
            refused = not self.lease.valid(begin_ns)
            outcomes = []
            if not refused:
                outcomes = [self._freeze(key, begin_ns) for key in freeze if key.job not in self._barred]
            frozen_ns = self._clock()
            outcomes += [self._thaw(key) for key in (list(self._held) if refused else thaw)]
            end_ns = self._clock()
            if self._held and not self.lease.valid(end_ns):
                # The process was stopped between check and write, or the lease ended under it.
                refused = True
                outcomes += [self._thaw(key) for key in list(self._held)]
            self._forget_own()
            self._shown = self._held.copy()
            used_ns = self._used_ns(outcomes)
        return Applied(begin_ns, frozen_ns, end_ns, _notable(outcomes), refused, used_ns)

    def thaw_all(self) -> Applied:
        """Thaw everything that we hold, even what another process has written since."""
        with self.alone():
            begin_ns = self._clock()
            self._strange.clear()
            outcomes = [self._thaw(key) for key in list(self._held)]
            self._forget_own()
            self._shown = self._held.copy()
            return Applied(begin_ns, begin_ns, self._clock(), _notable(outcomes), refused=False)

    def disown(self, keys: Iterable[StepKey]) -> None:
        """Forget that we hold these steps, and leave them as they are."""
        with self.alone():
            self._see()
            for key in keys:
                self.holder.disown(key)
                self._held.pop(key, None)
            self._forget_own()
            self._shown = self._held.copy()

    def adopt(self, found: tuple[Step, ...]) -> tuple[Step, ...]:
        """Let the holder know the steps that were found; what vanished is no longer held."""
        with self.alone():
            steps = self.holder.adopt(found, self._pause_if_spent)
            known = {step.key for step in steps}
            for key in [key for key in self._held if key not in known]:
                del self._held[key]
            self._shown = self._held.copy()
            return steps

    def cpu_ns(self, job: int) -> int | None:
        """CPU time of a job, as ``Holder.cpu_ns`` tells it; both threads ask."""
        with self.alone(changes=False):
            return self.holder.cpu_ns(job)

    def watch_files(self, files: dict[str, StepKey]) -> bool:
        """Watch exactly these control files; returns whether all can be watched."""
        with self.alone(changes=False):
            complete = self.watch is None or self.watch.set_files(files)
            self._look_for_strangers()  # watches that ended are reported, too: native code stops at them
            return complete

    def strange(self) -> set[StepKey]:
        """Return the steps whose control files other processes have written, until they are settled.

        Until then such steps are neither frozen nor thawed: another process may hold them by now.
        """
        with self.alone(changes=False):
            self._look_for_strangers()
            return self._strange.copy()

    def settle(self, key: StepKey) -> None:
        """Note that it was found out what another process has done to a step."""
        with self.alone():
            self._strange.discard(key)

    def _pause_if_spent(self) -> None:
        """Pause, with the lock and after too long without a pause, so that a switch is not late meanwhile."""
        if WORK.is_spent():
            self._lock.__exit__(None, None, None)
            try:
                WORK.pause()
            finally:
                self._lock.__enter__()

    def _void(self) -> None:
        self.changes += 1
        if self._ahead is not None:
            self._ahead.clear()

    def _take_note(self) -> None:
        """Let what native code has made be noted, if it has made anything, or a part of it."""
        if self._ahead is not None and (self._ahead.is_ahead or self._ahead.has_begun):
            with self.alone(changes=False):
                pass

    def _catch_up(self, ahead: NativeSwitches) -> None:
        changed = False
        for planned, done in ahead.made():
            changed = True
            self.turn += 1
            for key in planned.freeze:
                self._held.setdefault(key, done.begin_ns)
            for key in planned.prepared.thaw:
                self._held.pop(key, None)
            self._note(planned.writes, done.begin_ns)
            held = frozenset(key.job for key in self._held)
            self._made.append(Switched(planned.prepared, planned.applied(done), held, self.turn))
        begun = ahead.begun()
        if begun:  # it has come to us in the middle, and the caller continues from there
            self._note(begun, self._clock())
            self._begun = frozenset(write.key.job for write in begun)
            self._void()
        if begun or changed:
            self._shown = self._held.copy()
            if self.watch is not None:
                ended = ahead.native.ended_watches()
                if ended:
                    self.watch.take(ended)

    def _note(self, writes: Iterable[Write], now_ns: int) -> None:
        for write in writes:
            self.holder.note(write)
            if write.holds:
                self._held.setdefault(write.key, now_ns)

    def _used_ns(self, outcomes: Iterable[HoldOutcome]) -> Mapping[int, int]:
        """CPU time so far of the jobs that were held or let go just now."""
        wrote = {outcome.key.job for outcome in outcomes if outcome.did is Did.WROTE}
        used = {job: self.holder.cpu_ns(job) for job in wrote | self._begun}
        self._begun = frozenset()  # what native code had written of the same switch
        return {job: used_ns for job, used_ns in used.items() if used_ns is not None}

    def _look_for_strangers(self) -> None:
        self._see()
        if self._strange:
            self._void()

    def _see(self) -> None:
        """Before we write: whatever was written since our last write, was by another process."""
        if self.watch is not None:
            self._strange |= self.watch.written()

    def _forget_own(self) -> None:
        """After we wrote: the notices of now are our own writes."""
        if self.watch is not None:
            self.watch.written()

    def _freeze(self, key: StepKey, now_ns: int) -> HoldOutcome:
        if key in self._strange and (key not in self._held or key.job in self.yielding):
            # The next look would take our freeze for another's, or another's freeze would end with ours.
            return HoldOutcome(key, Did.NOTHING)
        outcome = self.holder.hold(key)
        if outcome.did is Did.GONE:
            self._held.pop(key, None)
        else:
            self._held.setdefault(key, now_ns)
        return outcome

    def _thaw(self, key: StepKey) -> HoldOutcome:
        if key in self._strange:
            return HoldOutcome(key, Did.NOTHING)
        outcome = self.holder.release(key)
        if outcome.did is not Did.FAILED:
            self._held.pop(key, None)
        return outcome


def _notable(outcomes: list[HoldOutcome]) -> tuple[HoldOutcome, ...]:
    return tuple(outcome for outcome in outcomes if outcome.did is not Did.NOTHING)
