"""Finding out what a killed replay had done, so that no job is lost and none is doubled.

Three witnesses tell that a job was submitted: its row in the RUN, a job of its name in Slurm, and the
start stamp that the job itself wrote (Slurm forgets an ended job after MinJobAge). An ``sbatch`` that
outlived the replay is waited for first, or its job would be missed and submitted again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from osub.errors import ClusterError
from osub.records import JobRecord
from osub.slurm import Job
from submitter.follow import planned_row
from submitter.pace import job_name, trace_job_of
from submitter.plan import PlannedJob
from submitter.stamps import read_stamps

_WAIT_S = 60.0


def wait_for_orphans(run_id: str, own_pid: int, pause: Callable[[float], None] = time.sleep) -> None:
    """Wait until no ``sbatch`` of this run is under way.

    Raises
    ------
    ClusterError
        One still is after a minute; the message names it.
    """
    mark = f"--job-name={job_name(run_id, 0)[:-1]}"
    deadline = time.monotonic() + _WAIT_S
    while orphans := _marked(mark, own_pid):
        if time.monotonic() > deadline:
            raise ClusterError(f"a submission of the earlier replay does not end (pid {orphans[0]})")
        pause(0.05)


def _marked(mark: str, own_pid: int) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != own_pid and any(word.startswith(mark) for word in process.cmdline()):
                found.append(process.pid)
    return found


def recover_rows(
    planned: Iterable[PlannedJob],
    rows: dict[int, JobRecord],
    jobs: Iterable[Job],
    folder: Path,
    run_id: str,
    origin: float,
) -> dict[int, JobRecord]:
    """Return rows of jobs that were submitted although the RUN does not say so.

    Parameters
    ----------
    planned
        The whole plan.
    rows
        Rows that the RUN has.
    jobs
        Slurm's jobs.
    folder
        The RUN's ``jobs`` folder.
    run_id, origin
        The run's id and the epoch second of its second 0.
    """
    in_slurm: dict[int, Job] = {}
    for job in sorted(jobs, key=lambda job: job.job_id, reverse=True):
        number = trace_job_of(job.name, run_id)
        if number is not None:
            in_slurm[number] = job
    recovered = {}
    for plan in planned:
        if plan.trace_job in rows:
            continue
        job_of_plan = in_slurm.get(plan.trace_job)
        stamps = read_stamps(folder, plan.trace_job)
        job_id = job_of_plan.job_id if job_of_plan else stamps.slurm_job
        if job_id is None:
            continue
        known = [job_of_plan.submit_time if job_of_plan else None, stamps.start_ms and stamps.start_ms / 1000]
        entered = min((instant for instant in known if instant is not None), default=origin + plan.due_s)
        row = planned_row(plan)
        fields = {name: getattr(row, name) for name in row.__struct_fields__}
        fields |= {"job_id": job_id, "submit_s": round(max(entered - origin, plan.due_s), 3)}
        recovered[plan.trace_job] = JobRecord(**fields)
    return recovered
