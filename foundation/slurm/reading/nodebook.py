"""The cluster's nodes, looked up by name while jobs are read; asked for again when they may have changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from foundation.slurm.slurm_types import JobSnapshot, NodeCores, SlurmJob, SlurmNode, UnreadableJob

FindNode = Callable[[str], SlurmNode | None]
"""Returns the cluster's node of a name, None where it has none."""


class BadRecordError(Exception):
    """A job's record says what cannot be; the message can be printed. It never leaves this package."""


def place(name: str, cores: Iterable[int], memory_mib: int, find: FindNode) -> NodeCores:
    """Return cores of a node, ascending.

    Raises
    ------
    BadRecordError
        The cluster has no such node, or not so many cores on it, or there are none.
    """
    node = find(name)
    if node is None:
        raise BadRecordError("it is on a node that the cluster does not have")
    ids = tuple(sorted(cores))
    if not ids or ids[0] < 0 or ids[-1] >= node.cores or len(set(ids)) < len(ids):
        raise BadRecordError(f"its cores on {node.name} are not among the {node.cores} that there are")
    return NodeCores(node.name, ids, memory_mib or None)


def each_once(places: Iterable[NodeCores]) -> tuple[NodeCores, ...]:
    """Return the places of a job; raises BadRecordError where a node is among them twice."""
    found = tuple(places)
    if len({held.node for held in found}) < len(found):
        raise BadRecordError("it is twice on one node")
    return found


def snapshot_of(jobs: Iterable[SlurmJob], unreadable: Iterable[UnreadableJob]) -> JobSnapshot:
    """Return a snapshot in which each id is unique: where two jobs have the same id, both are dropped."""
    byid: dict[int, SlurmJob] = {}
    bad = {one.job_id: one for one in unreadable}
    for job in jobs:
        if job.job_id in byid or job.job_id in bad:
            bad.setdefault(job.job_id, UnreadableJob(job.job_id, "Slurm tells of it twice"))
        byid[job.job_id] = job
    good = (job for key, job in byid.items() if key not in bad) if bad else byid.values()
    return JobSnapshot(tuple(good), tuple(bad.values()))


EVERY_S = 60.0
AT_MOST_EVERY_S = 5.0


class NodeBook:
    """Finds nodes by name.

    Attributes
    ----------
    edition
        Another number when a node is not what it was.
    missed
        Whether a name was looked up that is not known.
    """

    def __init__(
        self, load: Callable[[], Sequence[SlurmNode]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.edition = 0
        self.missed = False
        self._load = load
        self._clock = clock
        self._nodes: dict[str, SlurmNode] = {}
        self._shapes: dict[str, tuple[int, int, int]] = {}
        self._loaded_s = float("-inf")

    def find(self, name: str) -> SlurmNode | None:
        """Return a node, None where none of that name is known."""
        node = self._nodes.get(name)
        self.missed |= node is None
        return node

    def renew(self, every_s: float = EVERY_S) -> bool:
        """Ask for the nodes if they are older than ``every_s``; returns whether they are other ones now."""
        if self._clock() - self._loaded_s < every_s:
            return False
        before = self.edition
        self.keep(self._load())
        return self.edition != before

    def keep(self, nodes: Sequence[SlurmNode]) -> None:
        """Take nodes that were asked for just now."""
        self.missed = False
        self._loaded_s = self._clock()
        self._nodes = {node.name: node for node in nodes}
        shapes = {node.name: (node.cores, node.sockets, node.threads_per_core) for node in nodes}
        if shapes != self._shapes:
            self._shapes = shapes
            self.edition += 1
