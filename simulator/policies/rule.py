"""What a queue policy is, to the engine and to a user who writes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from simulator.job import Job
from simulator.placement.rule import Cores


class Desk(Protocol):
    """What a policy sees and does in one scheduling pass."""

    @property
    def now_us(self) -> int:
        """The present instant."""
        ...

    @property
    def waiting(self) -> Sequence[Job]:
        """The queue, in order of arrival."""
        ...

    @property
    def running(self) -> Sequence[Job]:
        """The jobs that hold cores, in order of job number."""
        ...

    def place(self, job: Job) -> Cores | None:
        """Return the cores that the waiting ``job`` would get now, or None if it does not fit."""
        ...

    def start(self, job: Job) -> bool:
        """Start the waiting ``job`` where the placement puts it; return False if it does not fit."""
        ...

    def earliest_start_us(self, job: Job, beside: Job | None = None) -> int:
        """Return when the waiting ``job`` could start if nothing else did.

        Running jobs are projected forward on their requested work, all counted as busy.

        Parameters
        ----------
        job
            The job, usually the queue's head.
        beside
            A waiting job that fits now and is assumed to start now.
        """
        ...


class QueuePolicy(Protocol):
    """Which waiting jobs start."""

    def schedule(self, desk: Desk) -> None:
        """Make one scheduling pass: called after every arrival and after every end of a job."""
        ...
