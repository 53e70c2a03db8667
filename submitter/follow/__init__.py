"""What became of the jobs: Slurm's answers and the jobs' own stamps as rows of the RUN."""

from __future__ import annotations

from submitter.follow.job_rows import Submission, disagreements, planned_row, submissions, submitted_row
from submitter.follow.job_tracker import CLAIM, JobTracker, Poll, choose_copy, job_name, own_jobs
from submitter.follow.journal_lifecycles import JOBS_FOLDER, read_stamps
