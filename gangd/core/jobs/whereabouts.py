"""Where jobs are, as the newest snapshot has it: what a node may speak of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from gangd.core.terms.scheduler_events import JobView


class Place(Enum):
    """How a node stands to a job."""

    HERE = "here"
    LEFT = "left"
    """It was there: what is said of it may have been on the way."""
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"
    """No snapshot has the job: it has just begun or ended, or there is none."""


class Whereabouts:
    """The nodes of each job, and those that it has given up since it began."""

    def __init__(self) -> None:
        self._left: dict[int, frozenset[int]] = {}

    def moved(self, old: JobView, new: JobView) -> None:
        """Note that a job is on other nodes than before: it shrank, or was requeued."""
        if old.cores.nodes != new.cores.nodes:
            gone = self._left.get(new.job, frozenset()).union(old.cores.nodes)
            self._left[new.job] = gone.difference(new.cores.nodes)

    def forget(self, job: int) -> None:
        """Note that a job is gone."""
        self._left.pop(job, None)

    @staticmethod
    def is_home(jobs: Iterable[int], node: int, views: Mapping[int, JobView]) -> bool:
        """Whether all of these jobs are on node number ``node``: what is usual, told at the least cost."""
        for job in jobs:
            view = views.get(job)
            if view is None or node not in view.cores.nodes:
                return False
        return True

    def place(self, job: int, node: int, views: Mapping[int, JobView]) -> Place:
        """Say how node number ``node`` stands to a job; ``views`` are those of the newest snapshot."""
        view = views.get(job)
        if view is None:
            return Place.UNKNOWN
        if node in view.cores.nodes:
            return Place.HERE
        return Place.LEFT if node in self._left.get(job, ()) else Place.ELSEWHERE
