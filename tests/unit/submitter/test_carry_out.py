"""Carrying out an eviction on a Slurm that refuses, forgets, restarts and does not answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from foundation.errors import HostError, UsageError
from foundation.slurm import Receiver, SlurmJob, SlurmJobState, SubmitRequest
from foundation.slurm.run_command import CommandOutput
from submitter.eviction import (
    END_PATIENCE_S,
    Eviction,
    EvictionMeans,
    EvictionOrder,
    Fate,
    OrderEnd,
    OrderOutcome,
    Requeue,
    commands,
    read_template,
)
from tests.fixtures.fake_slurm import FakeSlurm

KILL, APP, SYSTEM = Fate.KILL, Fate.APP, Fate.SYSTEM


@dataclass
class Stage:
    """A fake cluster, time that passes when the replay waits, and what came of it all."""

    slurm: FakeSlurm = field(default_factory=lambda: FakeSlurm(nodes=8, run_time=lambda _: 100_000.0))
    outcomes: list[OrderOutcome] = field(default_factory=list)
    ran: list[tuple[Sequence[str], float]] = field(default_factory=list)
    answer: CommandOutput | Exception = field(default_factory=lambda: CommandOutput(0, "", ""))
    at: dict[float, Callable[[], object]] = field(default_factory=dict)
    began: float = 0.0

    def start(self, **request: object) -> int:
        job_id = self.slurm.submit(SubmitRequest(script="#!/bin/sh\n", name="j", **request))  # type: ignore[arg-type]
        self.began = self.slurm.now
        return job_id

    def order(self, job_id: int, fate: Fate, planned_s: float = 0.0) -> EvictionOrder:
        job = self.slurm.job(job_id)
        assert job is not None
        assert job.start_time is not None
        return EvictionOrder(
            spec=job.spec, job_id=job_id, start_time=job.start_time, fate=fate, planned_s=planned_s
        )

    def run(self, *orders: EvictionOrder, **ways: object) -> list[OrderOutcome]:
        self.eviction = Eviction(
            client=self.slurm,
            orders=orders,
            ways=EvictionMeans(**{"deadline_s": 100.0, **ways}),  # type: ignore[arg-type]
            run_command=self.outside,
            clock=lambda: self.slurm.now,
            pause=self.pause,
            tell=self.outcomes.append,
        )
        self.eviction.run()
        return self.eviction.outcomes

    def pause(self, seconds: float) -> None:
        self.slurm.advance(seconds)
        for due in [due for due in self.at if self.slurm.now - self.began >= due]:
            self.at.pop(due)()

    def outside(self, words: Sequence[str], timeout_s: float) -> CommandOutput:
        self.ran.append((words, timeout_s))
        self.slurm.advance(5)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def state(self, job_id: int) -> SlurmJobState | None:
        job = self.slurm.job(job_id)
        return None if job is None else job.state


def test_kills_come_first_and_savers_one_after_another() -> None:
    stage = Stage()
    stage.slurm.on_signal = lambda _: 10.0
    first, second, third = stage.start(), stage.start(), stage.start()
    outcomes = stage.run(stage.order(first, APP, 20), stage.order(second, KILL), stage.order(third, APP, 20))
    assert [one.order.job_id for one in stage.outcomes] == [second, first, third]
    assert [one.end for one in outcomes] == [OrderEnd.SAVED, OrderEnd.CANCELLED, OrderEnd.SAVED]
    assert [round(one.after_s or 0) for one in outcomes] == [10, 0, 20]
    assert stage.slurm.signals == [(first, "USR1"), (third, "USR1")]
    assert outcomes[0].note == "COMPLETED"
    assert (stage.eviction.holding, stage.eviction.freed_s) == (set(), 20)


def test_who_does_not_end_leaves_the_others_their_time_and_is_ended() -> None:
    stage = Stage()
    first, second = stage.start(), stage.start()
    outcomes = stage.run(stage.order(first, APP, 20), stage.order(second, APP, 30))
    assert [round(one.after_s or 0) for one in outcomes] == [70, 100]
    assert [one.end for one in outcomes] == [OrderEnd.CANCELLED, OrderEnd.CANCELLED]
    assert "did not end by itself in time" in outcomes[0].note
    assert stage.state(first) is SlurmJobState.CANCELLED


def test_who_dies_of_the_signal_is_reported() -> None:
    stage = Stage()
    job = stage.start()
    stage.at[3] = lambda: stage.slurm.end(job, SlurmJobState.FAILED)
    (outcome,) = stage.run(stage.order(job, APP))
    assert outcome.end is OrderEnd.SAVED
    assert "FAILED" in outcome.note
    assert "perhaps nothing was saved" in outcome.note


def test_jobs_that_have_ended_are_no_error() -> None:
    stage = Stage()
    gone, forgotten, going = stage.start(), stage.start(), stage.start()
    orders = [stage.order(job, KILL) for job in (gone, forgotten, going)]
    stage.slurm.end(gone, SlurmJobState.COMPLETED)
    stage.slurm.end(forgotten, SlurmJobState.COMPLETED)
    stage.slurm.forget_ended()
    outcomes = stage.run(*orders)
    assert [one.end for one in outcomes] == [OrderEnd.GONE, OrderEnd.GONE, OrderEnd.CANCELLED]
    assert stage.eviction.holding == set()


def test_a_job_that_has_started_again_is_left_alone() -> None:
    stage = Stage()
    job = stage.start()
    order = stage.order(job, KILL)
    stage.slurm.advance(30)
    stage.slurm.requeue(job, after_s=1)
    stage.slurm.advance(2)
    assert stage.state(job) is SlurmJobState.RUNNING
    assert stage.run(order)[0].end is OrderEnd.RESTARTED
    assert stage.state(job) is SlurmJobState.RUNNING


def test_a_job_that_starts_again_while_it_saves_is_left_alone() -> None:
    stage = Stage()
    job = stage.start()

    def restart() -> None:
        stage.slurm.requeue(job, after_s=1)
        stage.slurm.advance(2)

    stage.at[5] = restart
    (outcome,) = stage.run(stage.order(job, APP))
    assert outcome.end is OrderEnd.RESTARTED
    assert stage.state(job) is SlurmJobState.RUNNING


def test_a_job_that_puts_itself_back_to_the_queue_has_saved_itself() -> None:
    stage = Stage()
    job = stage.start()
    stage.at[5] = lambda: stage.slurm.requeue(job, after_s=1000)
    (outcome,) = stage.run(stage.order(job, APP), requeue=Requeue.YES)
    assert (outcome.end, outcome.note) == (OrderEnd.SAVED, "PENDING")


def test_each_refusal_is_reported_and_the_others_go_on() -> None:
    stage = Stage()
    theirs, mine, other = stage.start(), stage.start(), stage.start()
    stage.slurm.others = {theirs, other}
    outcomes = stage.run(stage.order(theirs, KILL), stage.order(mine, KILL), stage.order(other, APP))
    assert [one.end for one in outcomes] == [OrderEnd.REFUSED, OrderEnd.CANCELLED, OrderEnd.REFUSED]
    assert "Access/permission denied" in outcomes[0].note
    assert stage.eviction.holding == {str(theirs), str(other)}
    assert stage.state(theirs) is SlurmJobState.RUNNING


class TestRequeue:
    def test_killed_and_saved_jobs_go_back(self) -> None:
        stage = Stage()
        stage.slurm.on_signal = lambda _: 2.0
        killed, saved = stage.start(), stage.start()
        outcomes = stage.run(stage.order(killed, KILL), stage.order(saved, APP), requeue=Requeue.HELD)
        assert [one.end for one in outcomes] == [OrderEnd.REQUEUED, OrderEnd.SAVED]
        assert outcomes[1].note == "COMPLETED; put back to the queue"
        assert [stage.state(job) for job in (killed, saved)] == [SlurmJobState.PENDING, SlurmJobState.PENDING]

    def test_who_may_not_start_again_is_cancelled_and_that_is_reported(self) -> None:
        stage = Stage()
        job = stage.start(no_requeue=True)
        (outcome,) = stage.run(stage.order(job, KILL), requeue=Requeue.YES)
        assert outcome.end is OrderEnd.CANCELLED
        assert outcome.note.startswith("not put back to the queue: ")


class TestSystem:
    def test_the_operators_command_runs_and_then_the_job_is_ended(self) -> None:
        stage = Stage()
        job = stage.start()
        words = read_template("ckpt --job={job} 'a b'")
        (outcome,) = stage.run(stage.order(job, SYSTEM, 60), system_command=words)
        assert stage.ran == [(("ckpt", f"--job={job}", "a b"), 100.0)]
        assert (outcome.end, outcome.note) == (OrderEnd.CANCELLED, "checkpointed")

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (CommandOutput(1, "", "no\ndisk\x1b[2J full\n"), "not checkpointed: disk?[2J full"),
            (CommandOutput(3, "", ""), "not checkpointed: exit code 3"),
            (CommandOutput(None, "", "no answer within 100 s"), "not checkpointed: no answer within 100 s"),
            (HostError("ckpt is not installed here"), "not checkpointed: ckpt is not installed here"),
        ],
    )
    def test_a_command_that_fails_is_reported_and_the_node_is_freed_all_the_same(
        self, answer: CommandOutput | Exception, words: str
    ) -> None:
        stage = Stage(answer=answer)
        job = stage.start()
        (outcome,) = stage.run(stage.order(job, SYSTEM), system_command=("ckpt", "{job}"))
        assert (outcome.end, outcome.note) == (OrderEnd.CANCELLED, words)

    @pytest.mark.parametrize("text", ["", "ckpt", "ckpt '{job}", "ckpt {jobs}"])
    def test_a_template_that_names_no_job_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError):
            read_template(text)


class TestSlurmAway:
    def test_a_job_of_which_slurm_says_nothing_is_not_known(self) -> None:
        stage = Stage()
        unreadable, fine = stage.start(), stage.start()
        orders = [stage.order(job, KILL) for job in (unreadable, fine)]
        stage.slurm.unreadable = {unreadable: "an odd record"}
        outcomes = stage.run(*orders)
        assert [one.end for one in outcomes] == [OrderEnd.UNKNOWN, OrderEnd.CANCELLED]
        assert "an odd record" in outcomes[0].note

    def test_an_outage_while_a_job_saves_is_waited_for(self) -> None:
        stage = Stage()
        stage.slurm.on_signal = lambda _: 30.0
        job = stage.start()
        stage.at[5] = lambda: setattr(stage.slurm, "reachable", False)
        stage.at[50] = lambda: setattr(stage.slurm, "reachable", True)
        assert stage.run(stage.order(job, APP))[0].end is OrderEnd.SAVED

    def test_an_outage_that_lasts_is_reported_and_bounded(self) -> None:
        stage = Stage()
        first, second = stage.start(), stage.start()
        stage.at[5] = lambda: setattr(stage.slurm, "reachable", False)
        outcomes = stage.run(stage.order(first, APP), stage.order(second, APP))
        assert [one.end for one in outcomes] == [OrderEnd.UNKNOWN, OrderEnd.UNKNOWN]
        assert stage.slurm.now - stage.began <= 100 + END_PATIENCE_S + 3


def test_an_interruption_leaves_what_was_done_and_what_was_not() -> None:
    stage = Stage()
    killed, saving, never = stage.start(), stage.start(), stage.start()

    def interrupt() -> None:
        raise KeyboardInterrupt

    stage.at[10] = interrupt
    orders = [stage.order(killed, KILL), stage.order(saving, APP), stage.order(never, APP)]
    with pytest.raises(KeyboardInterrupt):
        stage.run(*orders)
    assert [one.end for one in stage.eviction.outcomes] == [
        OrderEnd.CANCELLED,
        OrderEnd.INTERRUPTED,
        OrderEnd.NOT_DONE,
    ]
    assert stage.eviction.outcomes[1].note == "signalled"


def test_commands_are_reported_as_they_are_run() -> None:
    order = EvictionOrder(spec="12_3", job_id=15, start_time=1, fate=APP)
    ways = EvictionMeans(deadline_s=1, signal_name="TERM", receiver=Receiver.FULL, requeue=Requeue.HELD)
    assert commands(order, ways) == [
        ("scancel", "--signal=TERM", "--full", "12_3"),
        ("scontrol", "requeuehold", "12_3"),
    ]
    assert commands(replace(order, fate=KILL), EvictionMeans(deadline_s=1)) == [("scancel", "12_3")]


def test_a_task_of_an_array_is_not_its_array() -> None:
    """The first task of an array may have the id by which all of it is cancelled."""
    job = SlurmJob(
        job_id=12, name=None, user="u", uid=1, partition="p", state=SlurmJobState.RUNNING,
        reason="", num_nodes=1, array_job_id=12, array_task_id=0,
    )  # fmt: skip
    assert job.spec == "12_0"
    assert replace(job, array_job_id=None, array_task_id=None).spec == "12"
    assert replace(job, array_job_id=None, array_task_id=None, het_job_id=11, het_job_offset=1).spec == "11"
