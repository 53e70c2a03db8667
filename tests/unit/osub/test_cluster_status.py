"""What `osub cluster status` says of jobs that Slurm has and does not tell of."""

from __future__ import annotations

from foundation.slurm import JobSnapshot, UnreadableJob
from osub.cli.cluster import MOST_UNREADABLE, unreadable_lines


def test_jobs_that_cannot_be_read_are_named_the_first_few_of_them() -> None:
    assert unreadable_lines(JobSnapshot(())) == []
    some = (UnreadableJob(7, "its state is none that is known"), UnreadableJob(None, "its line is malformed"))
    assert unreadable_lines(JobSnapshot((), some)) == [
        "cannot be read: job 7: its state is none that is known",
        "cannot be read: a job: its line is malformed",
    ]
    many = tuple(UnreadableJob(number, "no") for number in range(2_000))
    lines = unreadable_lines(JobSnapshot((), many))
    assert len(lines) == MOST_UNREADABLE + 1
    assert lines[-1] == "... and 1990 more"
