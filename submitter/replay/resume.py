"""Finding out what a killed replay had done, so that no job is lost and none is doubled.

Three witnesses tell that a job was submitted: its row in the RUN, a job of its name in Slurm, and the
start stamp that the job itself wrote (Slurm forgets an ended job after MinJobAge). An ``sbatch`` that
outlived the replay is waited for first, or its job would be missed and submitted again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from foundation.errors import ClusterError
from foundation.records import JobRecord
from foundation.slurm import Job
from submitter.follow import choose_copy, job_name, own_jobs, planned_row, read_stamps
from submitter.plan import PlannedJob

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
    known: Collection[int],
    jobs: Iterable[Job],
    folder: Path,
    run_id: str,
    origin: float,
) -> list[JobRecord]:
    """Return rows of jobs that were submitted although the RUN does not say so.

    Parameters
    ----------
    planned
        The whole plan.
    known
        The trace's numbers of the jobs that the RUN knows.
    jobs
        Slurm's jobs.
    folder
        The RUN's ``jobs`` folder.
    run_id, origin
        The run's id and the epoch second of its second 0.
    """
    in_slurm = own_jobs(jobs, run_id, {os.geteuid()})
    recovered = []
    for plan in planned:
        if plan.trace_job in known:
            continue
        stamps = read_stamps(folder, plan.trace_job)
        copies = {job.job_id: job for job in in_slurm.get(plan.trace_job, ())}
        choice = choose_copy(copies.values(), None, stamps.slurm_job)
        if choice is None:
            continue
        job = copies.get(choice.job_id)
        stamped = [
            job.submit_time if job and not job.restarts else None,
            stamps.start_ms and stamps.start_ms / 1000,
        ]
        entered = min((instant for instant in stamped if instant is not None), default=origin + plan.due_s)
        row = planned_row(plan)
        entered_s = round(max(entered - origin, plan.due_s), 3)
        recovered.append(msgspec.structs.replace(row, job_id=choice.job_id, submit_s=entered_s))
    return recovered
