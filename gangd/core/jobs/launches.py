"""Where the tasks of jobs run: what agents said, maybe before Slurm named the job.

An agent tells once that a job's tasks run on its node. It may do so before a snapshot has the job, so what it
said is remembered for a while; how much, is bounded for each node.
"""

from __future__ import annotations

from gangd.core.jobs.gang import Gang
from gangd.core.terms.gang_settings import SECOND

KEPT_NS = 10 * SECOND
MOST_A_NODE = 4096


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
