"""Rows of a RUN from what is known of a job: the plan, the submission, Slurm's word, the job's stamps.

Pure: everything that is known comes in, a row goes out. Epoch times become seconds from the run's second 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from osub.records import AllocationRecord, JobRecord, Placement
from osub.records.rows import JobState as RowState
from osub.slurm import Job, JobState
from submitter.plan import PlannedJob, quoted
from submitter.stamps import Stamps

_STATES: dict[JobState, RowState] = {
    JobState.COMPLETED: "COMPLETED",
    JobState.CANCELLED: "CANCELLED",
    JobState.PREEMPTED: "CANCELLED",
    JobState.REVOKED: "CANCELLED",
    JobState.TIMEOUT: "TIMEOUT",
    JobState.DEADLINE: "TIMEOUT",
    JobState.NODE_FAIL: "NODE_FAIL",
    JobState.FAILED: "FAILED",
    JobState.OUT_OF_MEMORY: "FAILED",
    JobState.BOOT_FAIL: "FAILED",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What came of submitting a job: its Slurm id (None: refused, ``refusal`` says why), epoch seconds."""

    trace_job: int
    job_id: int | None
    called: float
    returned: float
    refusal: str | None = None


def planned_row(planned: PlannedJob) -> JobRecord:
    """Return the row of a job that has not been submitted."""
    return JobRecord(
        trace_job=planned.trace_job,
        kind=planned.kind,
        app=planned.app,
        args=quoted(planned.args),
        user=planned.user,
        queue=planned.partition,
        nodes=planned.nodes,
        cores=planned.cores,
        memory_mib=planned.memory_per_core_mib,
        due_s=planned.due_s,
        requested_s=planned.requested_s,
        dedicated_s=planned.dedicated_s,
        busy_s=planned.busy_s,
    )


def submitted_row(planned: PlannedJob, submission: Submission, origin: float) -> JobRecord:
    """Return the row of a job that was submitted (state null) or refused."""
    return _with(
        planned_row(planned),
        job_id=submission.job_id,
        submitted_s=_since(origin, submission.returned),
        submit_s=None if submission.job_id is None else _since(origin, submission.called),
        state="REFUSED" if submission.job_id is None else None,
    )


def ended_row(row: JobRecord, job: Job | None, stamps: Stamps, origin: float) -> JobRecord | None:
    """Return the final row of a submitted job, or None where it has not ended.

    Parameters
    ----------
    row
        The row as it was when the job was submitted.
    job
        Slurm's word; None where Slurm has forgotten the job, which it does some minutes after the end.
    stamps
        The job's own files.
    origin
        Epoch second of the run's second 0.
    """
    state = _final_state(job, stamps)
    if state is None:
        return None
    entered = row.submit_s or 0.0
    start = _instant(stamps.start_ms, job.start_time if job and job.cores else None, origin)
    end = _instant(stamps.end_ms, job.end_time if job else None, origin)
    if start is not None:
        start = max(start, entered)
    if end is not None:
        end = max(end, start if start is not None else entered)
    if state == "COMPLETED" and (start is None or end is None):
        state = "LOST"
    return _with(
        row,
        start_s=start,
        end_s=end,
        cpu_s=stamps.cpu_s,
        placement=placement_of(job) or row.placement,
        state=state,
        exit_code=_exit_code(job, stamps),
    )


def lost_row(row: JobRecord, stamps: Stamps, origin: float) -> JobRecord:
    """Return the row of a job of which neither Slurm nor the job itself tells the end."""
    start = _instant(stamps.start_ms, None, origin)
    return _with(row, start_s=None if start is None else max(start, row.submit_s or 0.0), state="LOST")


def allocation_row(row: JobRecord) -> AllocationRecord | None:
    """Return the allocation of an ended job, None where it never had one."""
    if row.job_id is None or row.start_s is None or row.placement is None:
        return None
    return AllocationRecord(
        job=row.job_id, from_s=row.start_s, to_s=row.end_s, placement=row.placement, why="start"
    )


def placement_of(job: Job | None) -> tuple[Placement, ...] | None:
    """Return the cores that Slurm gave a job, None where it gave none."""
    if job is None or not job.cores:
        return None
    return tuple(Placement(held.node, held.cores) for held in job.cores)


def _final_state(job: Job | None, stamps: Stamps) -> RowState | None:
    if job is not None:
        return _STATES.get(job.state)
    if stamps.exit_code is None:
        return None
    return "COMPLETED" if stamps.exit_code == 0 else "FAILED"


def _exit_code(job: Job | None, stamps: Stamps) -> int | None:
    if stamps.exit_code is not None:
        return stamps.exit_code
    if job is None:
        return None
    return 128 + job.exit_signal if job.exit_signal else job.exit_code


def _instant(ms: int | None, whole_seconds: int | None, origin: float) -> float | None:
    """Return the stamp of the job itself, else Slurm's, in the run's seconds."""
    if ms is not None:
        return _since(origin, ms / 1000)
    return None if whole_seconds is None else _since(origin, whole_seconds)


def _since(origin: float, epoch: float) -> float:
    return max(0.0, round(epoch - origin, 3))


def _with(row: JobRecord, **changes: object) -> JobRecord:
    fields = {name: getattr(row, name) for name in row.__struct_fields__} | changes
    return JobRecord(**fields)
