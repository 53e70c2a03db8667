"""Rows of a RUN from what is known of a job: the plan, the submission, Slurm's word, the job's stamps.

Pure: everything that is known comes in, an entry of the journal goes out. Epoch times become seconds from the
run's second 0. ``journal_lifecycles`` has the allocations of each attempt.

The rows of a RUN against Slurm's accounting: jobs that slurmctld forgot, and where the two disagree.

Pure. A job's own stamps are finer than Slurm's whole seconds, so an instant disagrees from two seconds on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from foundation.records import JobEntry, JobRecord, Placement
from foundation.records.row_types import JobState as RowState
from foundation.slurm import SlurmJob, SlurmJobState
from foundation.slurm.slurm_client import Accounted
from submitter.follow.journal_lifecycles import Stamps, StampsOf, instant, put_back, since, with_life
from submitter.plan import PlannedJob, quoted

_STATES: dict[SlurmJobState, RowState] = {
    SlurmJobState.COMPLETED: "COMPLETED",
    SlurmJobState.CANCELLED: "CANCELLED",
    SlurmJobState.PREEMPTED: "CANCELLED",
    SlurmJobState.REVOKED: "CANCELLED",
    SlurmJobState.TIMEOUT: "TIMEOUT",
    SlurmJobState.DEADLINE: "TIMEOUT",
    SlurmJobState.NODE_FAIL: "NODE_FAIL",
    SlurmJobState.FAILED: "FAILED",
    SlurmJobState.OUT_OF_MEMORY: "FAILED",
    SlurmJobState.BOOT_FAIL: "FAILED",
}
# Slurm says these for a moment before it starts a job again.
_MAY_LIVE_AGAIN = frozenset({SlurmJobState.NODE_FAIL, SlurmJobState.PREEMPTED, SlurmJobState.BOOT_FAIL})
_WAITS = frozenset(
    {
        SlurmJobState.PENDING,
        SlurmJobState.REQUEUED,
        SlurmJobState.REQUEUE_HOLD,
        SlurmJobState.REQUEUE_FED,
        SlurmJobState.RESV_DEL_HOLD,
        SlurmJobState.SPECIAL_EXIT,
    }
)


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
        submitted_s=since(origin, submission.returned),
        submit_s=None if submission.job_id is None else since(origin, submission.called),
        state="REFUSED" if submission.job_id is None else None,
    )


def waits(job: SlurmJob) -> bool:
    """Whether a job is in the queue, for the first time or again."""
    return job.state in _WAITS


def began_again(entry: JobEntry, job: SlurmJob) -> bool:
    """Whether a job whose end is recorded has come back to the queue, or ran once more, since."""
    return entry.job.state is not None and (not job.state.is_over or job.restarts > entry.restarts)


def reopened(entry: JobEntry) -> JobEntry:
    """Return the entry of a job that goes on after all."""
    return msgspec.structs.replace(
        entry, job=msgspec.structs.replace(entry.job, state=None, end_s=None, exit_code=None)
    )


def progressed(entry: JobEntry, job: SlurmJob, stamps_of: StampsOf, origin: float) -> JobEntry:
    """Return the entry of a job that goes on: with its start once it runs, closed once it waits again."""
    entry = _preempted(entry, job)
    if waits(job):
        return put_back(entry, job, stamps_of, origin)
    if not job.state.holds_cores or not job.cores:
        return entry
    life = _life(entry, job, stamps_of)
    if entry.allocations and life <= entry.restarts:
        return entry
    entry = put_back(entry, job, stamps_of, origin)
    # Slurm moves the start of a job that it is putting back to the queue.
    slurms = None if job.state is SlurmJobState.COMPLETING else job.start_time
    start = instant(stamps_of(life).start_ms, slurms, origin)
    if start is None:
        return entry
    return with_life(entry, placement_of(job), life, start, None, stamps_of, origin)


def ended(
    entry: JobEntry, job: SlurmJob | None, stamps_of: StampsOf, origin: float, *, accounted: bool = False
) -> JobEntry | None:
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
    accounted
        Whether ``job`` is accounting's word, which tells no cores: who has run for a second has begun.
    """
    life, stamps, ran = _last_life(entry, job, stamps_of)
    if accounted and job is not None:
        ran = ran or (job.start_time or 0) < (job.end_time or 0)
    state = _final_state(job, stamps)
    if state is None:
        return None
    if job is not None:
        entry = _preempted(entry, job)
    if not ran or life > entry.restarts:
        entry = put_back(entry, job, stamps_of, origin)
    row = entry.job
    entered = row.submit_s or 0.0
    start = instant(stamps.start_ms, job.start_time if job and ran else None, origin)
    start = row.start_s if start is None else max(start, entered)
    end = instant(stamps.end_ms, job.end_time if job else None, origin)
    if end is not None:
        end = max(end, entered if start is None else start)
    if state == "COMPLETED" and (start is None or end is None):
        state = "LOST"
    row = msgspec.structs.replace(
        row,
        start_s=start,
        end_s=end,
        cpu_s=stamps.cpu_s,
        steps=stamps.steps,
        step_s=stamps.step_s,
        steps_cpu_s=stamps.steps_cpu_s,
        first_step_s=instant(stamps.first_step_ms, None, origin),
        last_step_s=instant(stamps.last_step_ms, None, origin),
        state=state,
        exit_code=_exit_code(job, stamps),
    )
    entry = msgspec.structs.replace(entry, job=row)
    if not ran or start is None:
        return entry
    return with_life(entry, placement_of(job), life, start, end, stamps_of, origin)


def lost(entry: JobEntry, stamps_of: StampsOf, origin: float) -> JobEntry:
    """Return the entry of a job of which neither Slurm nor the job itself tells the end."""
    life = _life(entry, None, stamps_of)
    start = instant(stamps_of(life).start_ms, None, origin)
    if life > entry.restarts:
        entry = put_back(entry, None, stamps_of, origin)
    if start is not None:
        entry = with_life(entry, None, life, max(start, entry.job.submit_s or 0.0), None, stamps_of, origin)
    return msgspec.structs.replace(entry, job=msgspec.structs.replace(entry.job, state="LOST"))


def stamps_due(entry: JobEntry, job: SlurmJob | None, stamps_of: StampsOf) -> bool | None:
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
    if job.state is SlurmJobState.COMPLETED:
        return True
    return None if ran or job.state is not SlurmJobState.CANCELLED else False


def placement_of(job: SlurmJob | None) -> tuple[Placement, ...] | None:
    """Return the cores that Slurm gave a job, None where it gave none."""
    if job is None or not job.cores:
        return None
    return tuple(Placement(held.node, held.cores) for held in job.cores)


def _life(entry: JobEntry, job: SlurmJob | None, stamps_of: StampsOf) -> int:
    """Return the number of the last life that has begun.

    Slurm counts a restart when it puts the job back, long before the next life begins.
    """
    most = entry.restarts if job is None else max(job.restarts, entry.restarts)
    if job is None:
        while stamps_of(most + 1).start_ms is not None:
            most += 1
        return most
    if job.cores and job.state is not SlurmJobState.COMPLETING:
        return most
    return next(
        (life for life in range(most, -1, -1) if stamps_of(life).start_ms is not None), entry.restarts
    )


def _last_life(entry: JobEntry, job: SlurmJob | None, stamps_of: StampsOf) -> tuple[int, Stamps, bool]:
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


def _preempted(entry: JobEntry, job: SlurmJob) -> JobEntry:
    """Return the entry with a preemption more, where Slurm says that it preempts the life that is recorded.

    It says so until the job is back in the queue; a requeue for another reason looks the same from then on.
    """
    row, held = entry.job, entry.allocations or ()
    came_back = sum(one.why == "preemption" for one in held)
    says = job.preempt_time is not None or job.state is SlurmJobState.PREEMPTED
    if not says or not held or row.preemptions > came_back:
        return entry
    return msgspec.structs.replace(entry, job=msgspec.structs.replace(row, preemptions=came_back + 1))


def _final_state(job: SlurmJob | None, stamps: Stamps) -> RowState | None:
    if job is not None:
        return _STATES.get(job.state)
    if stamps.exit_code is None:
        return None
    return "COMPLETED" if stamps.exit_code == 0 else "FAILED"


def _exit_code(job: SlurmJob | None, stamps: Stamps) -> int | None:
    if stamps.exit_code is not None:
        return stamps.exit_code
    if job is None:
        return None
    return 128 + job.exit_signal if job.exit_signal else job.exit_code


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


def job_of(record: Accounted) -> SlurmJob:
    """Return a job as Slurm's view has it, with what accounting tells; its cores and names are not known."""
    return SlurmJob(
        job_id=record.job_id,
        name=None,
        user="",
        uid=0,
        partition="",
        state=record.state,
        reason="None",
        num_nodes=0,
        submit_time=record.submit_time,
        start_time=record.start_time,
        end_time=record.end_time,
        exit_code=record.exit_code,
        exit_signal=record.exit_signal,
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
        record = accounting.get(row.job_id)
        if record is None:
            found.append(Disagreement(row.trace_job, row.job_id, "job", row.state, None))
            continue
        accounted_state = _STATES.get(record.state)
        if accounted_state != row.state:
            found.append(Disagreement(row.trace_job, row.job_id, "state", row.state, str(record.state)))
        for field, ours, at in (
            ("start_s", row.start_s, record.start_time),
            ("end_s", row.end_s, record.end_time),
        ):
            if ours is None or at is None or row.state in _KILLED:
                continue
            if abs(ours - (at - origin)) > CLOSE_S:
                found.append(
                    Disagreement(row.trace_job, row.job_id, field, round(ours, 3), round(at - origin, 3))
                )
    return found
