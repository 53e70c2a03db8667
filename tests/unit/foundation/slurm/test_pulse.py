"""When the full answer of Slurm is asked for, and when a short list says that it would be the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foundation.slurm import JobSnapshot, SlurmJob, SlurmJobState
from foundation.slurm.hosts import NodeBook
from foundation.slurm.job_sources import FULL_EVERY_S, QuietSource
from foundation.slurm.slurm_types import AnswerTooLongError, SlurmUnreachableError


def snapshot(state: SlurmJobState = SlurmJobState.RUNNING) -> JobSnapshot:
    job = SlurmJob(
        job_id=1, name="x", user="u", uid=1, partition="main", state=state, reason="None", num_nodes=1
    )
    return JobSnapshot((job,))


class Slurm:
    """A Slurm whose answers a test sets; it counts requests."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.answer = snapshot()
        self.list: str | Exception = "1|RUNNING"
        self.full = self.short = 0
        self.fails = False
        self.source = QuietSource(self, self.ask, lambda: self.now_s)

    def read(self, _: NodeBook) -> JobSnapshot:
        self.full += 1
        if self.fails:
            raise SlurmUnreachableError("away")
        return JobSnapshot(self.answer.jobs)

    def ask(self, *words: str, check: Callable[[str], object] = len) -> str:
        self.short += 1
        if isinstance(self.list, Exception):
            raise self.list
        return self.list

    def look(self) -> tuple[JobSnapshot, int, int]:
        """Read once; returns what came of it, and how many full and short answers were asked for."""
        self.full = self.short = 0
        self.now_s += 1
        return self.source.read(NodeBook(list)), self.full, self.short


def quiet() -> Slurm:
    slurm = Slurm()
    assert [slurm.look()[1:] for _ in range(4)] == [(1, 0), (1, 0), (1, 1), (0, 1)]
    return slurm


def test_while_jobs_change_only_full_answers_are_asked_for() -> None:
    slurm = Slurm()
    for state in (
        SlurmJobState.PENDING,
        SlurmJobState.RUNNING,
        SlurmJobState.COMPLETING,
        SlurmJobState.COMPLETED,
    ):
        slurm.answer = snapshot(state)
        assert slurm.look() == (snapshot(state), 1, 0)


def test_what_changes_is_seen_at_once() -> None:
    slurm = quiet()
    slurm.answer, slurm.list = snapshot(SlurmJobState.COMPLETING), "1|COMPLETING"
    assert slurm.look() == (snapshot(SlurmJobState.COMPLETING), 1, 1)
    assert slurm.look()[1:] == (1, 0), "full answers until two are the same"


def test_what_a_list_does_not_report_is_seen_now_and_then() -> None:
    slurm = quiet()
    slurm.answer = snapshot(SlurmJobState.SUSPENDED)
    assert slurm.look() == (snapshot(), 0, 1)
    slurm.now_s += FULL_EVERY_S
    assert slurm.look() == (snapshot(SlurmJobState.SUSPENDED), 1, 1)


def test_after_a_failure_nothing_old_is_reported() -> None:
    slurm = quiet()
    slurm.list, slurm.answer, slurm.fails = "1|COMPLETED", snapshot(SlurmJobState.COMPLETED), True
    for _ in range(2):
        with pytest.raises(SlurmUnreachableError):
            slurm.look()
    slurm.fails = False
    assert slurm.look()[0] == snapshot(SlurmJobState.COMPLETED)


def test_a_list_that_is_too_long_is_done_without() -> None:
    slurm = quiet()
    slurm.list = AnswerTooLongError("more than 64 MiB")
    assert slurm.look()[1:] == (1, 1)


def test_slurm_being_away_is_reported() -> None:
    slurm = quiet()
    slurm.list = SlurmUnreachableError("away")
    with pytest.raises(SlurmUnreachableError):
        slurm.look()
