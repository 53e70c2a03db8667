"""Jobs in numbers, and those that cannot be read in a line each."""

from __future__ import annotations

from collections import Counter

from foundation.slurm import JobSnapshot

MOST_UNREADABLE = 10


def job_counts(snapshot: JobSnapshot) -> dict[str, int]:
    """Return how many jobs are in which state."""
    return dict(Counter(str(job.state) for job in snapshot.jobs))


def unreadable_lines(snapshot: JobSnapshot) -> list[str]:
    """Return a line for each of the first jobs that cannot be read, and one for the rest."""
    shown = snapshot.unreadable[:MOST_UNREADABLE]
    lines = [f"cannot be read: {one}" for one in shown]
    more = len(snapshot.unreadable) - len(shown)
    return [*lines, f"... and {more} more"] if more else lines
