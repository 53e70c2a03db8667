"""Signals that end a command: how it learns of them in time, whatever it computes.

Python calls a signal's handler in the main thread, between two of its own instructions. So three things keep
a command from ending in time, and each has its answer here:

=====================================  =====================================================================
compiled loops run for minutes         ``ShortCalls`` lets them return some ten times a second
a library restarts a wait (polars      the watching thread has the wait interrupted
sets SA_RESTART for SIGINT)
a library computes for long (LLVM)     the watching thread ends the process: no cleanup could begin, either
=====================================  =====================================================================

A command that has begun to clean up goes on with it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command; one that is ignored (``nohup``) stays ignored."""
CALL_S = 0.02
MOST_EVENTS = 8_000
"""A compiled loop gets as many events as take so long, and no more: the next may cost 100 times as much."""
GRACE_S = 1.2
"""The main thread has so long to see a signal."""
_RESTARTED_S = 0.2
_SAME_S = 1.0
_LOOK_S = 0.02
_FIRST_EVENTS = 4_000
_GROWTH = 2.0


class SignalInterrupt(KeyboardInterrupt):
    """A signal ends the command. As a subclass, it does not have Python end itself by SIGINT in the end."""


class _Signals:
    """The signals of this process: which one came first, and when the main thread saw it."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.seen_s = 0.0

    def see(self, number: int, _: FrameType | None) -> None:
        """Interrupt the main thread; a signal that comes to process and group is one."""
        now_s = time.monotonic()
        if self.number is not None and now_s - self.seen_s < _SAME_S:
            return
        self.number = self.number or number
        self.seen_s = now_s
        raise SignalInterrupt


_signals = _Signals()


def note(number: int | None) -> None:
    """Note which signal ends this command; None: no signal does, for a new command begins."""
    _signals.number = number
    _signals.seen_s = 0.0


def is_noted() -> bool:
    """Return whether a signal ends this command."""
    return _signals.number is not None


def status() -> int:
    """Return the exit status of an interrupted command: 128 and the signal, SIGINT if none is known."""
    return 128 + (_signals.number or signal.SIGINT)


def end(code: int) -> NoReturn:
    """End the process now; Python would first take its objects apart, for seconds once LLVM has compiled."""
    try:
        atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, which calls this.

    Where the main thread does not see a signal within ``GRACE_S``, the process ends with ``status()``.
    """
    before = {number: signal.getsignal(number) for number in ENDING}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    watcher = threading.Thread(
        target=_watch, args=(reading, threading.get_ident()), name="osub-signals", daemon=True
    )
    watcher.start()
    earlier = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in taken:
        signal.signal(number, _signals.see)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])
        signal.set_wakeup_fd(earlier)
        os.close(writing)
        watcher.join()
        os.close(reading)


@contextlib.contextmanager
def on_signals(tell: Callable[[int], object]) -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP tell their numbers, and do nothing else, while the context lasts."""
    before = {
        number: signal.signal(number, lambda number, _: tell(number))
        for number in ENDING
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Have what is done here reach its end before a signal of ``ENDING`` ends the command.

    The first signal that came meanwhile takes effect when the context ends without an error. In another
    thread than the main one, to which no signal goes, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    with on_signals(came.append):
        yield
    if came:
        signal.raise_signal(came[0])


def _watch(reading: int, main: int) -> None:
    """Wait for signals, and see to it that the main thread sees them."""
    while numbers := os.read(reading, 1):
        number = numbers[0]
        if signal.getsignal(number) != _signals.see:  # another part of the command takes it
            continue
        came_s = time.monotonic()
        if _is_seen(came_s, _RESTARTED_S):
            continue
        signal.siginterrupt(number, True)
        signal.pthread_kill(main, number)
        if not _is_seen(came_s, GRACE_S):
            os.write(2, b"osub: interrupted\n")
            os._exit(128 + number)


def _is_seen(came_s: float, within_s: float) -> bool:
    """Wait until the main thread has seen a signal that came at an instant.

    Looks are counted, not seconds: on a host that starves the process the main thread gets its chance, too.
    """
    for _ in range(round(within_s / _LOOK_S)):
        if _signals.seen_s >= came_s - _SAME_S:
            return True
        time.sleep(_LOOK_S)
    return False


class ShortCalls:
    """Calls a compiled loop with as many events as it does in about ``CALL_S``.

    Parameters
    ----------
    loop
        Its last parameter is how many events it may process in a call.
    most
        How many it gets at most.
    """

    def __init__(self, loop: Callable[..., Any], most: int | None = None) -> None:
        self._loop = loop
        self._most = MOST_EVENTS if most is None else most
        self._events = min(_FIRST_EVENTS, self._most)

    def __call__(self, *arguments: object) -> Any:
        """Call the loop once and return what it returns."""
        began_s = time.perf_counter()
        returned = self._loop(*arguments, self._events)
        took_s = time.perf_counter() - began_s
        growth = min(_GROWTH, CALL_S / max(took_s, 1e-9))
        self._events = min(self._most, max(1, int(self._events * growth)))
        return returned
