"""FakeSlurm allocates, lets time pass, and refuses what it does not know."""

from __future__ import annotations

import pytest

from foundation.slurm import SlurmJobState, SubmitRequest
from foundation.slurm.slurm_types import (
    SlurmRefusedError,
    SlurmUnreachableError,
    SubmitUncertainError,
)
from tests.fixtures.fake_slurm import FakeSlurm


def request(
    nodes: int = 1, tasks: int = 1, partition: str | None = None, minutes: int | None = None
) -> SubmitRequest:
    return SubmitRequest(
        script="#!/bin/sh\n",
        name="job",
        nodes=nodes,
        tasks_per_node=tasks,
        partition=partition,
        time_limit_minutes=minutes,
    )


def test_jobs_share_cores_up_to_the_multiplicity_then_wait() -> None:
    slurm = FakeSlurm(nodes=2, cores=1, multiplicity=2)
    ids = [slurm.submit(request(nodes=2)) for _ in range(3)]
    assert [job.state for job in slurm.jobs().jobs] == [
        SlurmJobState.RUNNING,
        SlurmJobState.RUNNING,
        SlurmJobState.PENDING,
    ]
    slurm.advance(10)
    third = slurm.job(ids[2])
    assert third is not None
    assert third.state is SlurmJobState.RUNNING
    assert third.nodes == ("n1", "n2")


def test_the_least_loaded_node_is_taken() -> None:
    slurm = FakeSlurm(nodes=2, cores=2, multiplicity=2)
    places = [slurm.submit(request()) for _ in range(3)]
    jobs = {job.job_id: job for job in slurm.jobs().jobs}
    assert [jobs[number].cores[0].node for number in places] == ["n1", "n2", "n1"]
    assert jobs[places[2]].cores[0].cores == (1,)


def test_a_limit_ends_a_job() -> None:
    slurm = FakeSlurm(run_time=lambda _: 200.0)
    number = slurm.submit(request(minutes=1))
    slurm.advance(60)
    job = slurm.job(number)
    assert job is not None
    assert job.state is SlurmJobState.TIMEOUT


@pytest.mark.parametrize("bad", [request(nodes=3), request(tasks=2), request(partition="gpu")])
def test_what_can_never_run_is_refused(bad: SubmitRequest) -> None:
    with pytest.raises(SlurmRefusedError):
        FakeSlurm(nodes=2, cores=1).submit(bad)


def test_unknown_jobs_are_refused() -> None:
    slurm = FakeSlurm()
    with pytest.raises(SlurmRefusedError):
        slurm.cancel([7])
    assert slurm.move_ends({7: 0}) == {7: "Invalid job id specified for job 7"}
    with pytest.raises(SlurmRefusedError):
        slurm.signal(7, "USR1")


def test_an_outage_is_an_error_everywhere() -> None:
    slurm = FakeSlurm()
    slurm.reachable = False
    with pytest.raises(SlurmUnreachableError):
        slurm.jobs()


def test_a_lost_answer_leaves_the_job_behind() -> None:
    slurm = FakeSlurm()
    slurm.lose_next_answer = True
    with pytest.raises(SubmitUncertainError):
        slurm.submit(request())
    assert len(slurm.jobs().jobs) == 1
