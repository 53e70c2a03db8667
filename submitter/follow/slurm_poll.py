"""Asking Slurm for its jobs, beside the main thread, so that a Slurm that is silent delays nobody."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass

from foundation.errors import ClusterError
from foundation.slurm import JobSnapshot, Node, SlurmClient
from submitter.plan import Clock, Timing

# A cluster with very many jobs is asked less often: at most a fifth of the time.
_SHARE = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """What Slurm said, or why it said nothing, when the answer came; nodes only where they were wanted."""

    at: float
    jobs: JobSnapshot | None = None
    nodes: tuple[Node, ...] | None = None
    error: ClusterError | None = None


class Poll:
    """The work of asking, step by step; answers are put on ``answers``.

    Parameters
    ----------
    client
        Slurm.
    timing, clock
        How often, on which clock.
    """

    def __init__(self, client: SlurmClient, timing: Timing, clock: Clock) -> None:
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.wants_nodes = threading.Event()
        self._client = client
        self._timing = timing
        self._clock = clock

    def step(self) -> float | None:
        """Ask once; see :class:`Worker`."""
        asked = self._clock.monotonic()
        try:
            jobs = self._client.jobs()
            nodes = tuple(self._client.nodes()) if self.wants_nodes.is_set() else None
        except ClusterError as error:
            self.answers.put(Answer(self._clock.monotonic(), error=error))
            return self._timing.poll_s
        now = self._clock.monotonic()
        self.answers.put(Answer(now, jobs, nodes))
        return max(self._timing.poll_s, _SHARE * (now - asked))
