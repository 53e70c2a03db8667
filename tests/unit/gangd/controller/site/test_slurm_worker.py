from __future__ import annotations

from collections.abc import Callable, Mapping

import zmq

from foundation.slurm import JobSnapshot, SubmitRequest
from foundation.slurm.slurm_types import SlurmUnreachableError
from gangd.controller.slurm_worker import (
    MOVES_A_CALL,
    Answer,
    Failed,
    LimitsMoved,
    SlurmObserved,
    SlurmWorker,
)
from gangd.daemon_process import Death
from tests.fixtures.fake_slurm import FakeSlurm


def request(**more: int) -> SubmitRequest:
    return SubmitRequest(script="#!/bin/sh\n", name="job", **more)  # type: ignore[arg-type]


def answers_of(worker: SlurmWorker, enough: Callable[[list[Answer]], bool]) -> list[Answer]:
    taken: list[Answer] = []
    poller = zmq.Poller()
    poller.register(worker.fd, zmq.POLLIN)
    for _ in range(200):
        if enough(taken):
            return taken
        poller.poll(100)
        taken += worker.take()
    raise AssertionError(f"not enough: {taken}")


def test_the_worker_looks_moves_and_survives_an_outage() -> None:
    slurm = FakeSlurm(start_time=1000.0)
    job = slurm.submit(request(time_limit_minutes=1))
    worker = SlurmWorker(slurm, every_s=0.05)
    worker.start()
    try:
        looked = answers_of(worker, lambda taken: len(taken) >= 2)
        assert all(isinstance(one, SlurmObserved) for one in looked)
        assert isinstance(looked[0], SlurmObserved)
        assert looked[0].nodes is not None
        worker.move_end(job, 1100.0, 1060.0)
        answers_of(worker, lambda taken: LimitsMoved({job: 1100.0}, {}) in taken)
        moved = slurm.job(job)
        assert moved is not None
        assert moved.end_time == 1100
        slurm.reachable = False
        failed = answers_of(worker, lambda taken: any(isinstance(one, Failed) for one in taken))
        assert "Slurm does not answer" in next(one.why for one in failed if isinstance(one, Failed))
        slurm.reachable = True
        answers_of(worker, lambda taken: any(isinstance(one, SlurmObserved) for one in taken))
    finally:
        worker.stop()


def test_the_worker_looks_less_often_while_nothing_changes() -> None:
    worker = SlurmWorker(FakeSlurm(), every_s=0.01)
    worker.start()
    try:
        quiet = answers_of(worker, lambda taken: len(taken) >= 8)
    finally:
        worker.stop()
    asked_ns = [one.asked_ns for one in quiet if isinstance(one, SlurmObserved)]
    assert asked_ns[7] - asked_ns[6] > 50_000_000  # 10 ms, times 1.5 with each look


def test_the_worker_looks_at_once_when_asked() -> None:
    worker = SlurmWorker(FakeSlurm(), every_s=3600)
    worker.start()
    try:
        answers_of(worker, lambda taken: len(taken) == 1)
        worker.ask()
        answers_of(worker, lambda taken: len(taken) == 1)
    finally:
        worker.stop()


def test_asking_at_once_for_nothing_becomes_as_rare_as_looking_is() -> None:
    worker = SlurmWorker(FakeSlurm(), every_s=0.5)
    asked_ns = []
    worker.start()
    try:
        for _ in range(6):
            [looked] = answers_of(worker, lambda taken: len(taken) == 1)
            assert isinstance(looked, SlurmObserved)
            asked_ns.append(looked.asked_ns)
            worker.ask()
    finally:
        worker.stop()
    assert asked_ns[-1] - asked_ns[-2] >= 400_000_000


class BrokenOnce(FakeSlurm):
    """Breaks its reader once, as an answer that nobody expected does."""

    broken = 0

    def jobs(self) -> JobSnapshot:
        if self.broken < 1:
            self.broken += 1
            raise KeyError("JobState")
        return super().jobs()


def test_an_answer_that_breaks_the_thread_is_reported_and_slurm_is_asked_again() -> None:
    worker = SlurmWorker(BrokenOnce(), every_s=0.05)
    worker.start()
    try:
        death, looked = answers_of(worker, lambda taken: len(taken) >= 2)[:2]
    finally:
        worker.stop()
    assert isinstance(death, Death)
    assert death.why.startswith("KeyError: 'JobState'")
    assert isinstance(looked, SlurmObserved)


class Mover(FakeSlurm):
    """Remembers in which calls ends were moved; does not answer the first ``silent`` of them."""

    def __init__(self, jobs: int, silent: int = 0) -> None:
        super().__init__(nodes=jobs, start_time=1000.0)
        for _ in range(jobs):
            self.submit(request(time_limit_minutes=1))
        self.silent = silent
        self.calls: list[list[int]] = []

    def move_ends(self, ends: Mapping[int, int]) -> Mapping[int, str]:
        self.calls.append(list(ends))
        if len(self.calls) <= self.silent:
            raise SlurmUnreachableError("Slurm did not say that it moved the ends")
        return super().move_ends(ends)


def moved_by(worker: SlurmWorker, jobs: int) -> list[Answer]:
    """Let a worker move the ends of jobs 1 to ``jobs``, the last of which is the nearest."""
    for job in range(1, jobs + 1):
        worker.move_end(job, 5000.0 + job, 3000.0 - job)
    worker.start()
    try:
        return answers_of(
            worker,
            lambda taken: sum(len(one.ends_s) for one in taken if isinstance(one, LimitsMoved)) >= jobs,
        )
    finally:
        worker.stop()


def test_the_nearest_ends_are_moved_first_and_many_by_one_call() -> None:
    slurm = Mover(MOVES_A_CALL + 20)
    moved_by(SlurmWorker(slurm, every_s=3600), MOVES_A_CALL + 20)
    assert slurm.calls == [list(range(MOVES_A_CALL + 20, 20, -1)), list(range(20, 0, -1))]
    assert [job.end_time for job in slurm.jobs().jobs[:2]] == [5001, 5002]


def test_ends_that_slurm_did_not_answer_are_moved_later() -> None:
    slurm = Mover(3, silent=2)
    answers = moved_by(SlurmWorker(slurm, every_s=0.02, again_s=0.05), 3)
    assert slurm.calls == [[3, 2, 1]] * 3
    assert sum(isinstance(one, Failed) for one in answers) == 2


def test_an_end_that_slurm_refuses_to_move_does_not_keep_others() -> None:
    slurm = Mover(2)
    slurm.cancel([2])
    worker = SlurmWorker(slurm, every_s=3600)
    worker.move_end(2, 5000.0, 1.0)
    [moved] = [one for one in moved_by(worker, 1) if isinstance(one, LimitsMoved)]
    assert moved.ends_s == {1: 5001.0}
    assert "not running" in moved.refused[2]


def test_nodes_that_come_are_known_soon() -> None:
    worker = SlurmWorker(FakeSlurm(), every_s=0.01, nodes_soon_s=0.05)
    worker.start()

    def with_nodes(taken: list[Answer]) -> list[SlurmObserved]:
        return [one for one in taken if isinstance(one, SlurmObserved) and one.nodes is not None]

    try:
        taken = answers_of(worker, lambda taken: len(with_nodes(taken)) >= 2)
        taken += answers_of(worker, lambda taken: len(taken) >= 4)
    finally:
        worker.stop()
    assert len(with_nodes(taken)) == 2, "nobody came or went since: a minute will do"
