"""Work in the background: a step that is called again and again, and a thread that calls it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Protocol

from foundation.errors import ClusterError, OsubError


class Worker(Protocol):
    """Something that is done step by step."""

    def step(self) -> float | None:
        """Do what is due now; return after how many seconds to come again, None when nothing is left."""
        ...


class RunningWorker(Protocol):
    """A worker at work."""

    def start(self) -> None:
        """Begin."""
        ...

    def fault(self) -> OsubError | None:
        """Return why the work ended before it was done; None while it goes on, is done, or was stopped."""
        ...

    def stop(self, within_s: float | None = None) -> None:
        """Begin no further step; wait for the one under way, at most ``within_s`` seconds."""
        ...


class WorkerThread(threading.Thread):
    """A thread that calls a worker's steps; nothing that a step raises is lost.

    Parameters
    ----------
    name
        What it does, for messages.
    worker
        Whose steps.
    promptly
        Whether it, and what it starts, runs before the jobs where they share CPUs.
    """

    def __init__(self, name: str, worker: Worker, *, promptly: bool = False) -> None:
        super().__init__(name=name, daemon=True)
        self._worker = worker
        self._promptly = promptly
        self._stopped = threading.Event()
        self._is_done = False
        self._error: BaseException | None = None

    def run(self) -> None:
        """Step until nothing is left, a step fails, or ``stop``."""
        try:
            if self._promptly:
                _before_the_jobs()
            while not self._stopped.is_set():
                pause_s = self._worker.step()
                if pause_s is None:
                    self._is_done = True
                    return
                self._stopped.wait(pause_s)
        except BaseException as error:  # a thread that dies unheard is waited for for ever
            self._error = error

    def fault(self) -> OsubError | None:
        """Return why the thread ended before its work was done."""
        if self._is_done or self._stopped.is_set() or self.is_alive():
            return None
        if isinstance(self._error, OsubError):
            return self._error
        what = "it ended" if self._error is None else f"{type(self._error).__name__}: {self._error}"
        fault = ClusterError(f"{self.name} failed ({what}); the jobs go on, and --resume follows them")
        fault.__cause__ = self._error
        return fault

    def stop(self, within_s: float | None = None) -> None:
        """Begin no further step, and wait for the one under way."""
        self._stopped.set()
        if self.ident is not None:
            self.join(within_s)


def _before_the_jobs() -> None:
    """Let this thread, and each process it starts, run before the jobs where they share the CPUs.

    Its few milliseconds a submission are what the lag is made of. Where the system does not permit it,
    nothing changes; on a cluster the submitting host has no jobs to compete with.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
