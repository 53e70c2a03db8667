"""What Slurm says of jobs: what those on cores are called, run, and for how long; and who waits."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from foundation.errors import OsubError
from foundation.slurm import JobSnapshot, SlurmJobState

ASK_EVERY_S = 2.0
_APPLICATION = re.compile(r"(?:^|\s)gangd-app=([A-Za-z0-9][A-Za-z0-9._+-]{0,62})(?=\s|$)")


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """What Slurm says of a job; name and application are its user's words, any character may be in the name.

    ``since_s`` is when it started or, of one that waits, was submitted, in seconds of the epoch.
    """

    job_id: int
    name: str | None
    user: str
    application: str | None
    since_s: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class LiveQueue:
    """Slurm's jobs at one instant: those on cores by number, and those that wait, the oldest first."""

    running: dict[int, QueuedJob]
    waiting: tuple[QueuedJob, ...]


def queue_of(snapshot: JobSnapshot) -> LiveQueue:
    """Return who runs and who waits."""
    running: dict[int, QueuedJob] = {}
    waiting: list[QueuedJob] = []
    for job in snapshot.jobs:
        said = job.admin_comment or job.comment or ""
        found = _APPLICATION.search(said)
        waits = job.state is SlurmJobState.PENDING
        queued = QueuedJob(
            job_id=job.job_id,
            name=job.name,
            user=job.user,
            application=None if found is None else found[1],
            since_s=job.submit_time if waits else job.start_time,
            reason=job.reason,
        )
        if waits:
            waiting.append(queued)
        elif job.state.holds_cores:
            running[job.job_id] = queued
    waiting.sort(key=lambda one: (one.since_s or 0.0, one.job_id))
    return LiveQueue(running, tuple(waiting))


class QueueEye:
    """Polls Slurm in a thread, so that the display never waits for the answer.

    Parameters
    ----------
    ask
        Returns Slurm's jobs, or raises OsubError.
    every_s
        Seconds between an answer and the next question.
    """

    def __init__(self, ask: Callable[[], JobSnapshot], every_s: float = ASK_EVERY_S) -> None:
        self._ask, self._every_s = ask, every_s
        self._done = threading.Event()
        self.latest: LiveQueue | None = None
        self._thread = threading.Thread(target=self._look, name="osub-top-queue", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def once(self) -> LiveQueue | None:
        """Ask now; None where Slurm does not answer."""
        try:
            return queue_of(self._ask())
        except OsubError:
            return None

    def _look(self) -> None:
        while not self._done.is_set():
            self.latest = self.once()
            self._done.wait(self._every_s)
