"""Marks jobs that share cores in Slurm: each once, few at a time. Pure.

A job waits here from when it begins to share until Slurm has been looked at again. It is marked if it runs
then and the field is empty; else it is left as it is, for good. Ten thousand jobs that begin at
once are 50 updates every five seconds for slurmctld, no flood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from foundation.slurm import SlurmJob
from foundation.slurm.slurm_client import MarkField
from gangd.controller.site.slurm_view import STATES

AT_ONCE = 50
"""Jobs marked by one command, some 0.2 s of it."""
EVERY_S = 5.0
MOST_WAITING = 200_000
DENIED = "denied"


class Marks:
    """The jobs that wait.

    Attributes
    ----------
    where
        The field that is written; None: no job is marked.
    """

    def __init__(self, where: MarkField | None = None) -> None:
        self.where = where
        self._waiting: dict[int, None] = {}
        self._done: dict[int, None] = {}
        self._next_s = float("-inf")

    def set_field(self, where: MarkField | None) -> None:
        """Write in another field from now on, or again in one that Slurm denied."""
        self.where = where
        if where is None:
            self._waiting.clear()

    def add(self, jobs: Iterable[int]) -> None:
        """Note jobs that begin to share."""
        if self.where is not None and len(self._waiting) < MOST_WAITING:
            self._waiting.update((job, None) for job in jobs if job not in self._done)

    def take(self, jobs: Mapping[int, SlurmJob], now_s: float) -> list[int]:
        """Take those that are marked now, by what Slurm has just said of jobs that hold cores."""
        where = self.where
        if where is None or not self._waiting or now_s < self._next_s:
            return []
        self._next_s = now_s + EVERY_S
        taken: list[int] = []
        for number in list(self._waiting):
            if len(taken) >= AT_ONCE:
                break
            del self._waiting[number]
            job = jobs.get(number)
            if job is not None and job.state in STATES and where.is_empty(job):
                taken.append(number)
                self._done[number] = None
        while len(self._done) > MOST_WAITING:
            del self._done[next(iter(self._done))]
        return taken

    def refused(self, why: Iterable[str]) -> bool:
        """Note what Slurm said of jobs that it did not mark; True if it lets us mark none."""
        if not any(DENIED in text for text in why):
            return False
        self.set_field(None)
        return True
