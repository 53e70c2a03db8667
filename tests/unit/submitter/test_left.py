"""The time that a replay says it has left is the time it takes, whether jobs queue or come slowly."""

from __future__ import annotations

import pytest

from foundation.records import JobEntry, JobRecord, SliceRecord, SliceRole
from submitter.plan.replay_plan import PlannedJob
from submitter.replay.replay_progress import HeldTime, time_left_s


def planned(trace_job: int, due_s: float, dedicated_s: float, cores: int = 1) -> PlannedJob:
    return PlannedJob(
        trace_job=trace_job,
        kind="batch",
        app="rrba",
        args=(),
        partition="batch",
        nodes=1,
        cores_per_node=cores,
        due_s=due_s,
        memory_per_core_mib=None,
        requested_s=None,
        limit_minutes=None,
        dedicated_s=dedicated_s,
        busy_s=dedicated_s,
        user=None,
    )


def row(job: PlannedJob, start_s: float | None, end_s: float | None = None) -> JobEntry:
    record = JobRecord(
        trace_job=job.trace_job,
        kind="batch",
        app="rrba",
        nodes=1,
        cores=job.cores,
        due_s=job.due_s,
        submitted_s=job.due_s,
        submit_s=job.due_s,
        dedicated_s=job.dedicated_s,
        start_s=start_s,
        end_s=end_s,
        state=None if end_s is None else "COMPLETED",
    )
    return JobEntry(record)


@pytest.mark.parametrize("now_s", [0.0, 50.0, 100.0, 450.0, 999.0])
def test_a_queue_takes_as_long_as_all_jobs_in_it(now_s: float) -> None:
    """Ten jobs of 100 s that all came at once, on one core."""
    jobs = [planned(number, 0.0, 100.0) for number in range(10)]
    began = int(now_s // 100)
    rows = {
        job.trace_job: row(
            job,
            100.0 * number if number <= began else None,
            100.0 * (number + 1) if number < began else None,
        )
        for number, job in enumerate(jobs)
    }
    assert time_left_s(jobs, rows, now_s, cores=1) == pytest.approx(1000 - now_s)


def test_jobs_that_come_slowly_are_waited_for() -> None:
    jobs = [planned(number, 100.0 * number, 10.0) for number in range(10)]
    assert time_left_s(jobs, {}, 0.0, cores=4) == pytest.approx(910)
    rows = {job.trace_job: row(job, job.due_s, job.due_s + 10) for job in jobs[:5]}
    assert time_left_s(jobs, rows, 460.0, cores=4) == pytest.approx(460, rel=0.02)


def test_cores_that_are_shared_are_slower_than_their_number_says() -> None:
    jobs = [planned(number, 0.0, 100.0) for number in range(4)]
    rows = {job.trace_job: row(job, 0.0, 250.0) for job in jobs[:2]}
    rows |= {job.trace_job: row(job, None) for job in jobs[2:]}
    assert time_left_s(jobs, rows, 250.0, cores=1) == pytest.approx(250)


def test_nothing_is_left_of_a_replay_that_ended() -> None:
    jobs = [planned(1, 0.0, 100.0)]
    assert time_left_s(jobs, {1: row(jobs[0], 0.0, 300.0)}, 300.0, cores=1) == 0


def test_time_without_an_agent_is_said_once_a_node() -> None:
    def row(
        node: str, job: int, start_s: float, length_s: float, role: SliceRole = "unattended"
    ) -> SliceRecord:
        return SliceRecord(slice=1, start_s=start_s, length_s=length_s, job=job, node=node, role=role)

    held = HeldTime()
    rows = [row("n1", 1, 0.0, 1.0), row("n1", 2, 0.5, 0.5), row("n1", 1, 1.0, 2.0), row("n2", 3, 0.0, 1.0)]
    assert list(held.through(rows)) == rows
    said = held.unattended()
    assert said is not None
    assert said.startswith("no agent of gangd acted on n1 for 3.00 s and on 1 other node for less")
    other = HeldTime()
    assert list(other.through([row("n1", 1, 0.0, 1.0, "held")]))
    assert other.unattended() is None
