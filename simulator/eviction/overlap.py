"""How long a set of checkpoints takes if the waits of applications pass side by side.

Algorithm 1 adds up whole times, waits included, which is pessimistic: while one application computes on to
its next checkpoint, another can write. Writes stay one after another, each once its wait is over; taken by
the ends of their waits they are done as early as can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.eviction.eviction_problem import Choice, EvictableJob


def overlapped_min(jobs: Sequence[EvictableJob], choices: Mapping[str, Choice]) -> float:
    """Return after how many minutes the last checkpoint of a set is written; nothing is rounded."""
    writes = []
    for job in jobs:
        choice = choices.get(job.name)
        if choice is Choice.APP:
            writes.append((job.wait_min, (job.ta_min or 0.0) - job.wait_min))
        elif choice is Choice.SYSTEM:
            writes.append((0.0, job.ts_min or 0.0))
    done = 0.0
    for ready, length in sorted(writes):
        done = max(done, ready) + length
    return done
