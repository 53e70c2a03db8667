"""Alarms for jobs that cannot be managed: their records cannot be read, or they are on cores nobody knows."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from foundation.slurm import UnreadableJob
from gangd.core import Alarm

log = logging.getLogger("gangd")

MOST_NAMED = 10  # of the jobs that cannot be read, in one look: users make them by the thousand


def unplaced(jobs: Sequence[int]) -> Alarm:
    """Return the alarm for jobs on cores that are not known."""
    if not jobs:
        return Alarm("placement", "jobs", "all jobs are on cores that are known", cleared=True)
    text = f"{len(jobs)} jobs are on cores that are not known, such as job {jobs[0]}"
    return Alarm("placement", "jobs", text)


class Unread:
    """Logs jobs that cannot be read as they come."""

    def __init__(self) -> None:
        self._known: frozenset[UnreadableJob] = frozenset()

    def look(self, unreadable: Sequence[UnreadableJob]) -> Alarm:
        """Log the first few that are new by name, and return the alarm for all."""
        if not unreadable:
            self._known = frozenset()
            return Alarm("unreadable", "jobs", "every job can be read again", cleared=True)
        news = [one for one in unreadable if one not in self._known]
        for one in news[:MOST_NAMED]:
            log.warning("not managed, for its record cannot be read: %s", one)
        if len(news) > MOST_NAMED:
            log.warning("not managed, for their records cannot be read: %d more", len(news) - MOST_NAMED)
        self._known = frozenset(unreadable)
        return Alarm(
            "unreadable",
            "jobs",
            f"not managed, for it cannot be read: {unreadable[0]}"
            if len(unreadable) == 1
            else f"{len(unreadable)} jobs cannot be read and are not managed, such as {unreadable[0]}",
        )
