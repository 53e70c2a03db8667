"""Where jobs are, and where their tasks run.

``Whereabouts`` goes by the newest snapshot: it is what a node may speak of. ``Launches`` goes by the agents,
each of which tells once that a job's tasks run on its node. It may do so before a snapshot has the job, so
what it said is remembered for a while; how much, is bounded for each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from gangd.core.jobs.gang import Gang
from gangd.core.terms.gang_settings import SECOND
from gangd.core.terms.scheduler_events import JobView

KEPT_NS = 10 * SECOND
MOST_A_NODE = 4096


class NodePresence(Enum):
    """What a node has to do with a job."""

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
        """Whether all of these jobs are on node number ``node``: the usual case, tested at the least cost."""
        for job in jobs:
            view = views.get(job)
            if view is None or node not in view.cores.nodes:
                return False
        return True

    def place(self, job: int, node: int, views: Mapping[int, JobView]) -> NodePresence:
        """Return what node ``node`` has to do with a job; ``views`` are those of the newest snapshot."""
        view = views.get(job)
        if view is None:
            return NodePresence.UNKNOWN
        if node in view.cores.nodes:
            return NodePresence.HERE
        return NodePresence.LEFT if node in self._left.get(job, ()) else NodePresence.ELSEWHERE


class Launches:
    """Jobs whose tasks run on a node, and since when that is known."""

    def __init__(self) -> None:
        self._noted: dict[int, dict[int, int]] = {}
        self._clear_ns = 0

    def note(self, node: int, job: int, now_ns: int) -> None:
        """Remember that the tasks of a job run on a node."""
        noted = self._noted.setdefault(node, {})
        if job in noted or len(noted) < MOST_A_NODE:
            noted[job] = now_ns

    def complete(self, gang: Gang) -> bool:
        """Whether the tasks of all jobs of a gang run on all of their nodes."""
        return all(
            job in self._noted.get(node, ()) for job, view in gang.views.items() for node in view.cores.nodes
        )

    def forget(self, gang: Gang) -> None:
        """Drop what is known of a gang that is gone: its jobs may run anew."""
        for job, view in gang.views.items():
            for node in view.cores.nodes:
                self._noted.get(node, {}).pop(job, None)

    def clear(self, now_ns: int) -> None:
        """Drop now and then what is older than any launch."""
        if now_ns < self._clear_ns:
            return
        self._clear_ns = now_ns + KEPT_NS
        for node, noted in list(self._noted.items()):
            kept = {job: noted_ns for job, noted_ns in noted.items() if now_ns < noted_ns + KEPT_NS}
            if kept:
                self._noted[node] = kept
            else:
                del self._noted[node]
