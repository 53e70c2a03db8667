from __future__ import annotations

from collections.abc import Callable

import zmq

from gangd.controller.slurm_worker import Answer, Failed, Looked, Moved, SlurmWorker
from gangd.threads import Death
from osub.slurm import FakeSlurm, JobSnapshot, SubmitRequest


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
        assert all(isinstance(one, Looked) for one in looked)
        assert isinstance(looked[0], Looked)
        assert looked[0].nodes is not None
        worker.move_end(job, 1100.0)
        answers_of(worker, lambda taken: Moved(job, 1100.0) in taken)
        moved = slurm.job(job)
        assert moved is not None
        assert moved.end_time == 1100
        slurm.reachable = False
        failed = answers_of(worker, lambda taken: any(isinstance(one, Failed) for one in taken))
        assert "Slurm does not answer" in next(one.why for one in failed if isinstance(one, Failed))
        slurm.reachable = True
        answers_of(worker, lambda taken: any(isinstance(one, Looked) for one in taken))
    finally:
        worker.stop()


def test_the_worker_looks_less_often_while_nothing_changes() -> None:
    worker = SlurmWorker(FakeSlurm(), every_s=0.01)
    worker.start()
    try:
        quiet = answers_of(worker, lambda taken: len(taken) >= 8)
    finally:
        worker.stop()
    asked_ns = [one.asked_ns for one in quiet if isinstance(one, Looked)]
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
            assert isinstance(looked, Looked)
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


def test_an_answer_that_breaks_the_thread_is_told_and_slurm_is_asked_again() -> None:
    worker = SlurmWorker(BrokenOnce(), every_s=0.05)
    worker.start()
    try:
        death, looked = answers_of(worker, lambda taken: len(taken) >= 2)[:2]
    finally:
        worker.stop()
    assert isinstance(death, Death)
    assert death.why.startswith("KeyError: 'JobState'")
    assert isinstance(looked, Looked)
