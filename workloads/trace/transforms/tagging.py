"""Job tagging: a random share of the jobs is marked as a class of its own.

SWF has no field for classes such as on-demand or malleable. What a later step tells classes apart by is a
number in a field that it can read: the queue, the partition, the group or the executable.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from foundation.errors import UsageError
from foundation.units import counted
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.transforms.filters import Selection


class TagField(StrEnum):
    """The field that carries the tag."""

    QUEUE = "queue"
    PARTITION = "partition"
    GROUP = "group"
    EXECUTABLE = "executable"


class DrawBy(StrEnum):
    """Whether single jobs are drawn, or users with all of their jobs."""

    JOB = "job"
    USER = "user"


def tag_jobs(
    trace: SwfTrace,
    field: TagField,
    number: int,
    share: float = 1.0,
    seed: int = 1,
    among: Selection = Selection(),
    by: DrawBy = DrawBy.JOB,
    name: str | None = None,
) -> SwfTrace:
    """Return ``trace`` with ``number`` in ``field`` of a random ``share`` of the jobs of ``among``.

    Parameters
    ----------
    trace
        The original.
    field, number
        The tag.
    share
        Of the jobs; by user, of the users (at least one for a share above 0).
    seed
        Of the choice. A larger share contains a smaller one's jobs.
    among
        Which jobs may be tagged.
    by
        What is drawn. By user, jobs without a user are not tagged.
    name
        Of the class: a Queue or Partition line in the header.

    Raises
    ------
    UsageError
        A number is out of range, or no job fits ``among``.
    """
    if not 0 <= share <= 1 or number < 0:
        raise UsageError("tagging needs a share of 0 to 1 and a number of 0 or more")
    places = [place for place, job in enumerate(trace.jobs) if among.holds(job)]
    rng = np.random.default_rng(seed)
    if by is DrawBy.USER:
        users = sorted({user for place in places if (user := trace.jobs[place].user) is not None})
        if not users:
            raise UsageError(f"no job of {trace.name} that may be tagged has a user: draw by job")
        wanted = max(1, round(share * len(users))) if share else 0
        drawn = {users[index] for index in rng.permutation(len(users))[:wanted].tolist()}
        chosen = {place for place in places if trace.jobs[place].user in drawn}
        what = f"all of {counted(len(drawn), 'user')}"
    else:
        if not places:
            raise UsageError(f"no job of {trace.name} may be tagged: {among.words}")
        order = rng.permutation(len(places)).tolist()
        chosen = {places[index] for index in order[: round(share * len(places))]}
        what = f"share {share:g}"
    jobs = [_tagged(job, field, number) if place in chosen else job for place, job in enumerate(trace.jobs)]
    words = f" among {among.words}" if among.words else ""
    note = f"osub tag: {field} {number} for {counted(len(chosen), 'job')}, {what}{words}, seed {seed}"
    tagged = trace.with_jobs(jobs, note)
    line = {TagField.QUEUE: "Queue", TagField.PARTITION: "Partition"}.get(field)
    if name is None or line is None:
        return tagged
    return replace(tagged, header=tagged.header.with_line(line, f"{number} {name}"))


def _tagged(job: SwfJob, field: TagField, number: int) -> SwfJob:
    match field:
        case TagField.QUEUE:
            return replace(job, queue=number)
        case TagField.PARTITION:
            return replace(job, partition=number)
        case TagField.GROUP:
            return replace(job, group=number)
        case TagField.EXECUTABLE:
            return replace(job, executable=number)
