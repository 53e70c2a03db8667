"""Who is told that he shares cores: once, few at a time, and never over somebody else's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
import zmq

from foundation.errors import ClusterError
from foundation.slurm import SlurmJob, SlurmNode, SubmitRequest
from foundation.slurm.slurm_client import MarkField
from foundation.slurm.slurm_types import SlurmUnreachableError
from gangd.controller.controller_config import Config
from gangd.controller.examine_slurm import check_marks
from gangd.controller.slurm_view import AT_ONCE, EVERY_S, Marks
from gangd.controller.slurm_worker import Answer, Failed, Marked, SlurmObserved, SlurmWorker
from gangd.core import BeganToShare
from tests.fixtures.core_bench import Bench, only
from tests.fixtures.fake_slurm import FakeSlurm

REQUEST = SubmitRequest(script="#!/bin/sh\n", name="job")


def running(count: int) -> dict[int, SlurmJob]:
    slurm = FakeSlurm(nodes=1, cores=1, multiplicity=count)
    for _ in range(count):
        slurm.submit(REQUEST)
    return {job.job_id: job for job in slurm.jobs().jobs}


def test_ten_thousand_jobs_are_marked_few_at_a_time() -> None:
    jobs = running(3 * AT_ONCE)
    marks = Marks(MarkField.ADMIN_COMMENT)
    marks.add(jobs)
    taken = []
    for step in range(12):
        some = marks.take(jobs, step * EVERY_S / 2)
        assert len(some) == (0 if step % 2 or step >= 6 else AT_ONCE)
        taken += some
    assert sorted(taken) == [*jobs]


def test_a_job_is_marked_once_however_often_it_begins_to_share() -> None:
    jobs = running(1)
    marks = Marks(MarkField.ADMIN_COMMENT)
    marks.add([1, 1])
    assert marks.take(jobs, 0) == [1]
    marks.add([1])
    assert marks.take(jobs, 100) == []


def test_what_a_user_wrote_stays_and_so_does_what_is_not_known() -> None:
    job = running(1)[1]
    for where, known in (
        (MarkField.ADMIN_COMMENT, replace(job, admin_comment="the site's")),
        (MarkField.EXTRA, replace(job, extra="the user's")),
        (MarkField.EXTRA, replace(job, extra=None)),
    ):
        marks = Marks(where)
        marks.add([1])
        assert marks.take({1: known}, 0) == []
        assert marks.take({1: replace(job, extra="")}, 100) == []  # it is asked once
    empty = Marks(MarkField.EXTRA)
    empty.add([1])
    assert empty.take({1: replace(job, extra="")}, 0) == [1]


def test_without_the_option_no_one_is_marked_and_nothing_is_kept() -> None:
    marks = Marks()
    marks.add([1])
    marks.set_field(MarkField.ADMIN_COMMENT)
    assert marks.take(running(1), 0) == []


def test_a_job_that_is_gone_is_not_marked() -> None:
    marks = Marks(MarkField.ADMIN_COMMENT)
    marks.add([1, 2])
    assert marks.take(running(1), 0) == [1]


def test_the_core_says_once_of_each_gang_that_it_shares() -> None:
    bench = Bench()
    bench.job(1, {"n1": [0]})
    bench.job(2, {"n1": [1]})
    assert only(bench.snapshot(), BeganToShare) == []
    bench.job(3, {"n1": [1]})
    assert sorted(only(bench.snapshot(), BeganToShare), key=lambda one: one.jobs) == [
        BeganToShare((2,)),
        BeganToShare((3,)),
    ]
    bench.job(4, {"n1": [1]})
    assert only(bench.snapshot(), BeganToShare) == [BeganToShare((4,))]


class Site(FakeSlurm):
    """Remembers what was marked; says no to all of it, or does not answer."""

    def __init__(self, *, no: str = "", silent: bool = False) -> None:
        super().__init__(nodes=1, cores=1, multiplicity=4)
        self.no, self.silent = no, silent
        self.marked: list[list[int]] = []
        self.node_looks = 0
        for _ in range(2):
            self.submit(REQUEST)

    def nodes(self) -> Sequence[SlurmNode]:
        self.node_looks += 1
        return super().nodes()

    def mark(self, job_ids: Iterable[int], where: MarkField, text: str) -> Mapping[int, str]:
        ids = list(job_ids)
        self.marked.append(ids)
        if self.silent:
            raise SlurmUnreachableError("no answer")
        return dict.fromkeys(ids, self.no) if self.no else super().mark(ids, where, text)


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


def marked_by(slurm: Site) -> list[Answer]:
    worker = SlurmWorker(slurm, every_s=0.02)
    worker.mark_in(MarkField.ADMIN_COMMENT)
    worker.mark([1, 2])
    worker.start()
    try:
        taken = answers_of(worker, lambda taken: any(isinstance(one, Marked | Failed) for one in taken))
        worker.mark([1, 2])
        return taken + answers_of(
            worker, lambda more: sum(isinstance(one, SlurmObserved) for one in more) >= 2
        )
    finally:
        worker.stop()


def test_the_worker_marks_after_a_look() -> None:
    slurm = Site()
    taken = marked_by(slurm)
    assert [one for one in taken if isinstance(one, Marked)] == [Marked(2, {}, denied=False)]
    assert slurm.marked == [[1, 2]]
    said = {job.admin_comment for job in slurm.jobs().jobs}
    assert all(text is not None and text.startswith("gangd-shares-cores=") for text in said)


def test_who_may_not_mark_says_so_and_tries_no_more() -> None:
    slurm = Site(no="slurm_update error: Access/permission denied")
    [marked] = [one for one in marked_by(slurm) if isinstance(one, Marked)]
    assert (marked.jobs, marked.denied) == (0, True)
    assert len(slurm.marked) == 1


def test_a_mark_that_slurm_did_not_answer_is_reported_and_not_repeated() -> None:
    slurm = Site(silent=True)
    [failed] = [one for one in marked_by(slurm) if isinstance(one, Failed)]
    assert failed.what == "mark 2 jobs as sharing cores"
    assert len(slurm.marked) == 1


def test_slurm_before_23_02_has_no_extra() -> None:
    with pytest.raises(ClusterError, match=r"22\.05\.8 have no Extra"):
        check_marks(Config(mark_jobs="extra"), "22.05.8")
    for config, version in (
        ("extra", "23.02.1"),
        ("extra", "fake"),
        ("admin_comment", "22.05.8"),
        (None, "22.05.8"),
    ):
        check_marks(Config(mark_jobs=config), version)  # type: ignore[arg-type]


def test_a_job_on_a_node_that_is_new_brings_the_node_with_it() -> None:
    slurm = Site()
    worker = SlurmWorker(slurm, every_s=0.02)
    worker.start()
    try:
        answers_of(worker, lambda taken: sum(isinstance(one, SlurmObserved) for one in taken) >= 3)
        looks = slurm.node_looks
        slurm._nodes.append("n2")  # a settled cluster: nodes would be asked for in a minute
        slurm.submit(replace(REQUEST, nodes=2))
        slurm.advance(0)
        taken = answers_of(
            worker,
            lambda taken: any(isinstance(one, SlurmObserved) and one.nodes is not None for one in taken),
        )
    finally:
        worker.stop()
    [looked] = [one for one in taken if isinstance(one, SlurmObserved) and one.nodes is not None]
    assert {node.name for node in looked.nodes or ()} == {"n1", "n2"}
    assert any(len(job.cores) == 2 for job in looked.snapshot.jobs)
    assert slurm.node_looks == looks + 1


def test_an_agent_of_a_node_that_is_new_has_nodes_asked_for() -> None:
    slurm = Site()
    worker = SlurmWorker(slurm, every_s=3600.0, nodes_soon_s=0.0)

    def with_nodes(taken: list[Answer]) -> bool:
        return any(isinstance(one, SlurmObserved) and one.nodes is not None for one in taken)

    worker.start()
    try:
        answers_of(worker, with_nodes)
        worker.ask_nodes()
        answers_of(worker, with_nodes)
    finally:
        worker.stop()
    assert slurm.node_looks == 2
