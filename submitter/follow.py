"""Rows of a RUN from what is known of a job: the plan, the submission, Slurm's word, the job's stamps.

Pure: everything that is known comes in, an entry of the journal goes out. Epoch times become seconds from the
run's second 0. A job has as many *lives* as Slurm starts it: life 0, and one more for each requeue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from osub.records import AllocationRecord, JobEntry, JobRecord, Placement
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
# Slurm says these for a moment before it starts a job again.
_MAY_LIVE_AGAIN = frozenset({JobState.NODE_FAIL, JobState.PREEMPTED, JobState.BOOT_FAIL})
_WAITS = frozenset(
    {
        JobState.PENDING,
        JobState.REQUEUED,
        JobState.REQUEUE_HOLD,
        JobState.REQUEUE_FED,
        JobState.RESV_DEL_HOLD,
        JobState.SPECIAL_EXIT,
    }
)

StampsOf = Callable[[int], Stamps]
"""What a job's life, from 0, stamped."""


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
    return msgspec.structs.replace(
        planned_row(planned),
        job_id=submission.job_id,
        submitted_s=_since(origin, submission.returned),
        submit_s=None if submission.job_id is None else _since(origin, submission.called),
        state="REFUSED" if submission.job_id is None else None,
    )


def waits(job: Job) -> bool:
    """Whether a job is in the queue, for the first time or again."""
    return job.state in _WAITS


def began_again(entry: JobEntry, job: Job) -> bool:
    """Whether a job whose end is recorded has come back to the queue, or ran once more, since."""
    return entry.job.state is not None and (not job.state.is_over or job.restarts > entry.restarts)


def reopened(entry: JobEntry) -> JobEntry:
    """Return the entry of a job that goes on after all."""
    return msgspec.structs.replace(
        entry, job=msgspec.structs.replace(entry.job, state=None, end_s=None, exit_code=None)
    )


def progressed(entry: JobEntry, job: Job, stamps_of: StampsOf, origin: float) -> JobEntry:
    """Return the entry of a job that goes on: with its start once it runs, closed once it waits again."""
    if waits(job):
        return _put_back(entry, job, stamps_of, origin)
    if not job.state.holds_cores or not job.cores:
        return entry
    life = _life(entry, job, stamps_of)
    if entry.allocations and life <= entry.restarts:
        return entry
    entry = _put_back(entry, job, stamps_of, origin)
    # Slurm moves the start of a job that it is putting back to the queue.
    slurms = None if job.state is JobState.COMPLETING else job.start_time
    start = _instant(stamps_of(life).start_ms, slurms, origin)
    return entry if start is None else _with_allocation(entry, job, life, start, None)


def ended(entry: JobEntry, job: Job | None, stamps_of: StampsOf, origin: float) -> JobEntry | None:
    """Return the last entry of a submitted job, or None where it has not ended.

    Parameters
    ----------
    entry
        What is recorded of it.
    job
        Slurm's word; None where Slurm has forgotten the job, which it does some minutes after the end.
    stamps_of
        The job's own files.
    origin
        Epoch second of the run's second 0.
    """
    life, stamps, ran = _last_life(entry, job, stamps_of)
    state = _final_state(job, stamps)
    if state is None:
        return None
    if not ran or life > entry.restarts:
        entry = _put_back(entry, job, stamps_of, origin)
    row = entry.job
    entered = row.submit_s or 0.0
    start = _instant(stamps.start_ms, job.start_time if job and ran else None, origin)
    start = row.start_s if start is None else max(start, entered)
    end = _instant(stamps.end_ms, job.end_time if job else None, origin)
    if end is not None:
        end = max(end, entered if start is None else start)
    if state == "COMPLETED" and (start is None or end is None):
        state = "LOST"
    row = msgspec.structs.replace(
        row,
        start_s=start,
        end_s=end,
        cpu_s=stamps.cpu_s,
        placement=placement_of(job) or row.placement,
        state=state,
        exit_code=_exit_code(job, stamps),
    )
    entry = msgspec.structs.replace(entry, job=row)
    if not ran or start is None or row.placement is None:
        return entry
    return _with_allocation(entry, job, life, start, end)


def lost(entry: JobEntry, stamps_of: StampsOf, origin: float) -> JobEntry:
    """Return the entry of a job of which neither Slurm nor the job itself tells the end."""
    start = _instant(stamps_of(_life(entry, None, stamps_of)).start_ms, None, origin)
    row = entry.job
    start = row.start_s if start is None else max(start, row.submit_s or 0.0)
    return msgspec.structs.replace(entry, job=msgspec.structs.replace(row, start_s=start, state="LOST"))


def stamps_due(entry: JobEntry, job: Job | None, stamps_of: StampsOf) -> bool | None:
    """Return whether more may become known of a job that has ended: True surely, None perhaps, False no.

    A job that ended by itself has stamped start and end, although a network file system may show them late;
    one that was killed may have. One whose node failed may begin another life.
    """
    if job is None or not job.state.is_over:
        return False
    _, stamps, ran = _last_life(entry, job, stamps_of)
    if job.state in _MAY_LIVE_AGAIN:
        return None
    if stamps.are_whole:
        reports = entry.job.app in {"eiba", "rrba"} and stamps.exit_code == 0
        return reports and stamps.cpu_s is None
    if job.state is JobState.COMPLETED:
        return True
    return None if ran or job.state is not JobState.CANCELLED else False


def placement_of(job: Job | None) -> tuple[Placement, ...] | None:
    """Return the cores that Slurm gave a job, None where it gave none."""
    if job is None or not job.cores:
        return None
    return tuple(Placement(held.node, held.cores) for held in job.cores)


def _life(entry: JobEntry, job: Job | None, stamps_of: StampsOf) -> int:
    """Return the number of the last life that has begun.

    Slurm counts a restart when it puts the job back, long before the next life begins.
    """
    most = entry.restarts if job is None else max(job.restarts, entry.restarts)
    if job is None:
        while stamps_of(most + 1).start_ms is not None:
            most += 1
        return most
    if job.cores and job.state is not JobState.COMPLETING:
        return most
    return next(
        (life for life in range(most, -1, -1) if stamps_of(life).start_ms is not None), entry.restarts
    )


def _last_life(entry: JobEntry, job: Job | None, stamps_of: StampsOf) -> tuple[int, Stamps, bool]:
    """Return the last life of a job that has ended, its stamps, and whether the job ended in it.

    It did not where the job never began, or was cancelled while it waited for its next life.
    """
    life = _life(entry, job, stamps_of)
    stamps = stamps_of(life)
    if job is None:
        return life, stamps, True
    if job.restarts > life:
        return life, Stamps(start_ms=stamps.start_ms), False
    recorded = bool(entry.allocations) and entry.restarts == life
    return life, stamps, stamps.start_ms is not None or recorded or bool(job.cores)


def _put_back(entry: JobEntry, job: Job | None, stamps_of: StampsOf, origin: float) -> JobEntry:
    """Return the entry with its open allocation closed, as it is when a job goes back to the queue."""
    if not entry.allocations or entry.allocations[-1].to_s is not None:
        return entry
    last = entry.allocations[-1]
    # Slurm stamps a job that it puts back as submitted anew.
    back = _instant(stamps_of(entry.restarts).end_ms, job.submit_time if job else None, origin)
    to_s = None if back is None else max(back, last.from_s)
    closed = msgspec.structs.replace(last, to_s=to_s)
    gone_s = (entry.job.wasted_s or 0.0) + (0.0 if to_s is None else to_s - last.from_s)
    row = msgspec.structs.replace(entry.job, wasted_s=round(gone_s, 3))
    return msgspec.structs.replace(entry, job=row, allocations=(*entry.allocations[:-1], closed))


def _with_allocation(
    entry: JobEntry, job: Job | None, life: int, start: float, end: float | None
) -> JobEntry:
    """Return the entry with the allocation of a life, instead of what was known of that life."""
    row = entry.job
    placement = placement_of(job) or row.placement
    if row.job_id is None or placement is None:
        return entry
    known = entry.allocations or ()
    earlier = known[:-1] if known and entry.restarts == life else known
    least = max([row.submit_s or 0.0, *(held.to_s or held.from_s for held in earlier[-1:])])
    from_s = max(start, least)
    to_s = None if end is None else max(end, from_s)
    held = AllocationRecord(
        job=row.job_id, from_s=from_s, to_s=to_s, placement=placement, why="requeue" if life else "start"
    )
    row = msgspec.structs.replace(row, start_s=from_s, placement=placement)
    if row.end_s is not None:
        row = msgspec.structs.replace(row, end_s=max(row.end_s, from_s))
    return JobEntry(row, (*earlier, held), life)


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
