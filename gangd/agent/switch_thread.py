"""The thread that switches: sleeps until an absolute instant, then freezes and thaws what was prepared.

It decides nothing and allocates next to nothing. At a slice's instant it freezes the outgoing steps, then
thaws the incoming ones, and records the instants; where there is native code for it (``native``), it does not
even run Python for that. When the lease ends it thaws everything, even if the rest of the agent hangs. The
loop prepares the switches to come and collects those that were made; it also watches the thread, and leaves
with everything thawed when that is dead or stuck.
"""

from __future__ import annotations

import collections
import os
import select
import threading
import time
from collections.abc import Callable

from foundation.errors import HostError
from gangd.agent.hold_controller import HoldController
from gangd.agent.linux_host import TimerFd
from gangd.agent.native import NativeSwitch
from gangd.agent.planned_switches import Applied, PreparedSwitch, Switched
from gangd.daemon_process import drained

RETRY_NS = 50_000_000
"""What could not be thawed at the lease's end is tried again so soon."""
OVERDUE_NS = 1_000_000_000
"""What is due for so long, although the thread was seen to be late before, will never be done."""
_END_S = 2.0
_SAME_NS = 10_000_000  # less than any quantum: instants of one slice, as the clock's offset is refined


class Switch:
    """What has to happen at which instant; the caller of ``fire`` makes it happen."""

    def __init__(self, gate: HoldController, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._gate = gate
        self._clock = clock
        self._queue: tuple[PreparedSwitch, ...] = ()
        self._planned = 0
        self._last: PreparedSwitch | None = None
        self._retry_ns = 0
        self._lock = threading.Lock()
        self._done: collections.deque[Switched] = collections.deque(maxlen=64)
        self.expired: collections.deque[Applied] = collections.deque(maxlen=8)

    @property
    def is_planned(self) -> bool:
        """Whether all planned switches are handed over; else ``prepare`` them anew."""
        return self._gate.native is None or self._planned == self._gate.changes

    def prepare(self, *prepared: PreparedSwitch) -> None:
        """Replace what is to happen next, soonest first. A switch that was just made is not made again."""

        def choose() -> tuple[PreparedSwitch, ...]:
            self._absorb()
            with self._lock:
                last = self._last
                kept = (each for each in prepared if last is None or not _is_over(each, last))
                self._queue = tuple(kept)
                return self._queue

        self._planned = self._gate.plan(choose)

    def awaits(self, now_ns: int) -> bool:
        """Whether something is still to happen; tells without taking note of what has happened."""
        queue = self._queue
        return bool(queue) and (self._gate.native is None or queue[-1].instant_ns > now_ns)

    def prepared(self) -> PreparedSwitch | None:
        """Return what is to happen next."""
        queue = self.queue()
        return queue[0] if queue else None

    def queue(self) -> tuple[PreparedSwitch, ...]:
        """Return everything that is to happen."""
        self._absorb()
        return self._queue

    def due_ns(self) -> int | None:
        """When ``fire`` must be called: the prepared instant, or the end of the lease if anything is held."""
        following = self.prepared()
        times = [] if following is None else [following.instant_ns]
        if self._gate.held:
            times.append(max(self._gate.lease.until_ns(), self._retry_ns))
        return min(times, default=None)

    def fire(self) -> None:
        """Do what is due now."""
        self._absorb()
        now_ns = self._clock()
        with self._lock:
            prepared = self._queue[0] if self._queue else None
            if prepared is not None and prepared.instant_ns <= now_ns:
                self._queue, self._last = self._queue[1:], prepared
            else:
                prepared = None
        if prepared is not None:
            applied = self._gate.apply(prepared.freeze, prepared.thaw, next_turn=True)
            held = frozenset(key.job for key in self._gate.held)
            self._done.append(Switched(prepared, applied, held, self._gate.turn))
        elif self._gate.held and not self._gate.lease.valid(now_ns):
            self.expired.append(self._gate.thaw_all())
            self._retry_ns = self._clock() + RETRY_NS

    def has_made(self) -> bool:
        """Whether ``collect`` has something to return."""
        return bool(self._done) or self._gate.has_made

    def collect(self) -> list[Switched]:
        """Return the switches that were made since the last call, oldest first."""
        self._absorb()
        return drained(self._done)

    def _absorb(self) -> None:
        for made in self._gate.take_made() if self._gate.has_made else ():
            last = made.prepared
            with self._lock:
                self._last = last
                self._queue = tuple(each for each in self._queue if not _is_over(each, last))
            self._done.append(made)


class SwitchThread(Switch):
    """A ``Switch`` with a thread of its own.

    ``alarm_fd`` becomes readable when the loop should look at once: the lease ended, or the thread failed.

    Parameters
    ----------
    gate
        Where it acts.
    on_start
        Called in the thread before anything else (to take its priority).
    """

    def __init__(self, gate: HoldController, on_start: Callable[[], object]) -> None:
        super().__init__(gate)
        self.alarm_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.failure: BaseException | None = None
        self._native = gate.native
        self._alarm = TimerFd()
        self._alarm_lock = threading.Lock()
        self._armed_ns: int | None = None
        self._command_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._overdue_ns: int | None = None
        self._on_start = on_start
        self._thread = threading.Thread(target=self._main, name="switch", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            why = f"the switch thread cannot be started: {error}"
            raise HostError(f"{why}; raise the limit of processes (pids.max, RLIMIT_NPROC)") from error

    def prepare(self, *prepared: PreparedSwitch) -> None:
        """See ``Switch``."""
        super().prepare(*prepared)
        self.rearm(rang=self._native is not None)

    def rearm(self, *, rang: bool = False) -> None:
        """Set the alarm anew if it must ring at another time than it is set to (``rang``: is not set)."""
        if self._native is not None:
            if rang or not self._is_armed(self._native):
                self._rearm_native(self._native)
            return
        if not rang and self.due_ns() == self._armed_ns:
            return
        with self._alarm_lock:
            due_ns = self.due_ns()
            self._armed_ns = due_ns
            if due_ns is None:
                self._alarm.clear()
            else:
                self._alarm.set(due_ns)

    def _is_armed(self, native: NativeSwitch) -> bool:
        """Whether native code, which goes from one switch to the next by itself, will look soon enough."""
        armed_ns = native.armed_ns
        return armed_ns is not None and self.is_planned and armed_ns <= self._gate.lease.until_ns()

    def _rearm_native(self, native: NativeSwitch) -> None:
        """Set the alarm of native code, and look again: something else may be due meanwhile."""
        while True:
            due_ns = self.due_ns()
            wanted_ns = None if due_ns is None else max(1, due_ns)
            if wanted_ns == native.armed_ns or not native.arm(wanted_ns):
                return

    def is_well(self, now_ns: int) -> bool:
        """Whether the thread is alive, and has done what was long overdue at the last call.

        Not long due alone: an agent that was stopped and goes on is late, and well.
        """
        due_ns = self.due_ns()
        before_ns, self._overdue_ns = self._overdue_ns, None
        if due_ns is not None and now_ns - due_ns > OVERDUE_NS:
            self._overdue_ns = due_ns
        stuck = before_ns is not None and self._overdue_ns == before_ns
        return self._thread.is_alive() and not stuck

    def stop(self) -> None:
        """End the thread; nothing is thawed."""
        self._stopping = True
        os.eventfd_write(self._command_fd, 1)
        if self._native is not None:
            self._native.wake()
        self._thread.join(_END_S)
        if self._thread.is_alive():
            return  # it is stuck, and goes with the process; its descriptors must not become others'
        for fd in (self.alarm_fd, self._command_fd):
            os.close(fd)
        self._alarm.close()

    def _main(self) -> None:
        try:
            self._on_start()
            poller = select.poll()
            poller.register(self._alarm.fd, select.POLLIN)
            poller.register(self._command_fd, select.POLLIN)
            while not self._stopping:
                if self._rang(poller):
                    self.fire()
                    self.rearm(rang=True)
                    if self.expired:
                        os.eventfd_write(self.alarm_fd, 1)
        except BaseException as error:  # the loop must learn of it, thaw and end the agent
            self.failure = error
            os.eventfd_write(self.alarm_fd, 1)

    def _rang(self, poller: select.poll) -> bool:
        """Wait; returns whether there is something to do here."""
        if self._native is not None:
            return self._native.run()
        poller.poll()
        return self._alarm.rang()


def _is_over(prepared: PreparedSwitch, last: PreparedSwitch) -> bool:
    """Whether a switch was made, or came before the one that was made last."""
    same = prepared.number == last.number and abs(prepared.instant_ns - last.instant_ns) < _SAME_NS
    return same or prepared.instant_ns <= last.instant_ns
