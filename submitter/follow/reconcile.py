"""The rows of a RUN against Slurm's accounting: jobs that slurmctld forgot, and where the two disagree.

Pure. A job's own stamps are finer than Slurm's whole seconds, so an instant disagrees from two seconds on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foundation.records import JobRecord
from foundation.slurm import Job
from foundation.slurm.job_accounting import Accounted
from submitter.follow.job_rows import row_state

CLOSE_S = 2.0
_KILLED = ("CANCELLED", "TIMEOUT", "NODE_FAIL")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One field of a job in which the RUN and accounting differ."""

    trace_job: int
    job_id: int
    field: str
    run: object
    accounting: object


def job_of(told: Accounted) -> Job:
    """Return a job as Slurm's view has it, with what accounting tells; its cores and names are not known."""
    return Job(
        job_id=told.job_id,
        name=None,
        user="",
        uid=0,
        partition="",
        state=told.state,
        reason="None",
        num_nodes=0,
        submit_time=told.submit_time,
        start_time=told.start_time,
        end_time=told.end_time,
        exit_code=told.exit_code,
        exit_signal=told.exit_signal,
    )


def submissions(rows: Iterable[JobRecord], origin: float) -> dict[int, float]:
    """Return when jobs were submitted, seconds since the epoch, by Slurm's id, of those that have one."""
    return {row.job_id: origin + (row.submit_s or 0.0) for row in rows if row.job_id is not None}


def disagreements(
    rows: Iterable[JobRecord], accounting: Mapping[int, Accounted], origin: float
) -> list[Disagreement]:
    """Return where rows of jobs that have ended and accounting differ; a job that it does not have is one.

    Parameters
    ----------
    rows
        The rows; those without an id or a state, and refused ones, are left out.
    accounting
        By Slurm's id.
    origin
        Epoch second of the run's second 0.
    """
    found: list[Disagreement] = []
    for row in rows:
        if row.job_id is None or row.state in {None, "REFUSED"}:
            continue
        told = accounting.get(row.job_id)
        if told is None:
            found.append(Disagreement(row.trace_job, row.job_id, "job", row.state, None))
            continue
        theirs = row_state(told.state)
        if theirs != row.state:
            found.append(Disagreement(row.trace_job, row.job_id, "state", row.state, str(told.state)))
        for field, ours, instant in (
            ("start_s", row.start_s, told.start_time),
            ("end_s", row.end_s, told.end_time),
        ):
            if ours is None or instant is None or row.state in _KILLED:
                continue
            if abs(ours - (instant - origin)) > CLOSE_S:
                found.append(
                    Disagreement(row.trace_job, row.job_id, field, round(ours, 3), round(instant - origin, 3))
                )
    return found
