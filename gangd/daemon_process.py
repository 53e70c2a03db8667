"""A daemon's process: limit of open files, garbage collector, and threads whose death is reported at once."""

from __future__ import annotations

import contextlib
import gc
import resource
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
YOUNG, MIDDLE, OLD = 50_000, 50, 100


def allow_open_files() -> int:
    """Raise this process's soft limit of open files to the hard one, which needs no privilege; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    with contextlib.suppress(ValueError, OSError):  # "unlimited" is more than some kernels allow
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def calm_collector() -> None:
    """Look for cyclic garbage rarely, and never among what exists now.

    With tens of thousands of jobs a full collection takes longer than a slice may. The controller makes next
    to no cycles: almost everything is freed by its reference count.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


def drained(queue: deque[T]) -> list[T]:
    """Take all that is in a queue, into which other threads may put more meanwhile."""
    taken: list[T] = []
    with contextlib.suppress(IndexError):
        while True:
            taken.append(queue.popleft())
    return taken


FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Death:
    """A thread died of an unexpected exception.

    Attributes
    ----------
    thread
        Its name.
    why
        The exception and where it came from, in one line.
    count
        How often this thread has died so far.
    """

    thread: str
    why: str
    count: int


class WatchedThread:
    """A daemon thread that does some work until ``stop``, whatever exceptions it meets.

    Parameters
    ----------
    name
        Its name, in alarms too.
    work
        Called in the thread. To return means that it is done; to raise, that it died and is to begin anew.
    on_death
        Called in the dying thread with each death; must not raise. Best put it where a loop will find it.
    """

    def __init__(self, name: str, work: Callable[[], None], on_death: Callable[[Death], None]) -> None:
        self.name = name
        self.deaths = 0
        self._work = work
        self._on_death = on_death
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin the work."""
        self._thread.start()

    def stop(self, within_s: float | None) -> bool:
        """Begin nothing anew, and wait for the work, which must know that it is to end; True if it did."""
        self._leaving.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._leaving.is_set():
            began_s = time.monotonic()
            try:
                self._work()
            except BaseException as error:  # nothing may end the thread unseen
                self.deaths += 1
                self._on_death(Death(self.name, _in_one_line(error), self.deaths))
            else:
                return
            lasted_s = time.monotonic() - began_s
            pause_s = FIRST_PAUSE_S if lasted_s > LONGEST_PAUSE_S else min(2 * pause_s, LONGEST_PAUSE_S)
            self._leaving.wait(pause_s)


def _in_one_line(error: BaseException) -> str:
    """Return the exception, and the last places that it came through."""
    what = " ".join(traceback.format_exception_only(error)[-1].split())
    places = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-_DEPTH:]]
    return f"{what} ({' > '.join(places)})"
