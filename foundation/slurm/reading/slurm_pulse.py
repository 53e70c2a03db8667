"""Whether anything has changed: a cheap look that spares the full one while the cluster is quiet.

``squeue --json`` writes a hundred fields of every job, six times the work of a short list. So once two full
answers in a row were the same, a short list is taken before the next one, and from then on it alone is asked
for: as long as it is the same to the byte, so is the answer. It is compared, never read, so that it may hold
what users write. What changes and changes back between two looks is seen by a full one now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from foundation.slurm.reading.job_sources import Ask, JobSource
from foundation.slurm.reading.nodebook import NodeBook
from foundation.slurm.reading.record_faults import AnswerTooLongError
from foundation.slurm.reading.text_jobs import FACTS, SEPARATOR
from foundation.slurm.slurm_types import JobSnapshot

FULL_EVERY_S = 30.0
_WRITTEN = ("Name", "Comment", "Feature", "Reason", "Account", "QOS")
_WORDS = (
    "squeue",
    "--noheader",
    "--all",
    "--states=all",
    "--noconvert",
    f"--Format={','.join(f'{field}:0{SEPARATOR}' for field in (*FACTS, *_WRITTEN))}",
)


class QuietSource:
    """Another source, asked less often while nothing changes.

    Parameters
    ----------
    source
        What is asked for full answers.
    ask
        Runs a command.
    """

    def __init__(self, source: JobSource, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._ask = ask
        self._clock = clock
        self._last: JobSnapshot | None = None
        self._last_s = float("-inf")
        self._pulse: str | None = None
        self._quiet = False

    def read(self, nodes: NodeBook) -> JobSnapshot:
        """Return all jobs."""
        pulse = self._take() if self._quiet else None
        recent = self._clock() < self._last_s + FULL_EVERY_S
        if self._last is not None and pulse is not None and pulse == self._pulse and recent:
            return self._last
        now_s = self._clock()
        snapshot = self._source.read(nodes)
        self._quiet = snapshot == self._last
        self._last, self._last_s, self._pulse = snapshot, now_s, pulse
        return snapshot

    def _take(self) -> str | None:
        try:
            return self._ask(*_WORDS)
        except AnswerTooLongError:
            return None
