"""How long a replay will take still: guessed from the work that is left and the pace of what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foundation.records import JobEntry
from submitter.plan import PlannedJob

_ENOUGH = 0.05
"""From this share of the work on, what was done says how fast work is done; before, the cores do."""


def time_left_s(
    jobs: Sequence[PlannedJob], entries: Mapping[int, JobEntry], now_s: float, cores: int
) -> float:
    """Return a guess at the seconds until the last job ends.

    Parameters
    ----------
    jobs
        All jobs of the plan, by ``due_s``.
    entries
        What is known of those that were submitted, by the trace's number.
    now_s
        Seconds since the run's second 0.
    cores
        Of the cluster.
    """
    work = done = 0.0
    longest_s = 0.0
    for job in jobs:
        entry = entries.get(job.trace_job)
        work += job.cores * job.dedicated_s
        if entry is None:
            longest_s = max(longest_s, max(0.0, job.due_s - now_s) + job.dedicated_s)
        elif entry.job.state is not None:
            done += job.cores * job.dedicated_s
        else:
            start_s = entry.job.start_s
            ran_s = 0.0 if start_s is None else min(max(0.0, now_s - start_s), job.dedicated_s)
            done += job.cores * ran_s
            longest_s = max(longest_s, job.dedicated_s - ran_s)
    rate = float(cores)
    if now_s > 0 and done > _ENOUGH * work:
        rate = min(rate, done / now_s)
    return max(longest_s, (work - done) / rate)
