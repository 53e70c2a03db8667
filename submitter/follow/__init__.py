"""What became of the jobs: Slurm's answers and the jobs' own stamps as rows of the RUN."""

from __future__ import annotations

from submitter.follow.following import Following
from submitter.follow.job_copies import CLAIM, choose_copy, job_name, own_jobs
from submitter.follow.job_rows import Submission, planned_row, submitted_row
from submitter.follow.job_stamps import JOBS_FOLDER, read_stamps
from submitter.follow.reconcile import disagreements, submissions
from submitter.follow.slurm_poll import Poll

__all__ = [
    "CLAIM",
    "JOBS_FOLDER",
    "Following",
    "Poll",
    "Submission",
    "choose_copy",
    "disagreements",
    "job_name",
    "own_jobs",
    "planned_row",
    "read_stamps",
    "submissions",
    "submitted_row",
]
