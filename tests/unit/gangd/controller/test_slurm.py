"""What the controller knows of Slurm: view, worker, differences, marks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ClusterError
from foundation.slurm import (
    JobSnapshot,
    NodeCores,
    Reservation,
    SlurmJob,
    SlurmJobState,
    SlurmNode,
    SnapshotDifference,
    SubmitRequest,
    UnreadableJob,
)
from foundation.slurm import SlurmJobState as SlurmState
from foundation.slurm.run_command import run_command
from foundation.slurm.slurm_client import MarkField
from foundation.slurm.slurm_types import SlurmRefusedError, SlurmUnreachableError
from foundation.slurm.text_jobs import read_cores
from gangd.controller.controller_config import Config, JobRule
from gangd.controller.examine_slurm import check_marks
from gangd.controller.job_policy import JobRules, Policy, policy_of
from gangd.controller.slurm_view import AT_ONCE, EVERY_S, ClusterView, Marks
from gangd.controller.slurm_worker import (
    MOVES_A_CALL,
    Answer,
    Failed,
    LimitsMoved,
    Marked,
    SlurmObserved,
    SlurmWorker,
)
from gangd.core.cores import CoreMap
from gangd.core.gang_settings import CoreSettings
from gangd.core.scheduler import GangScheduler
from gangd.core.scheduler_events import (
    AgentJoined,
    BeganToShare,
    GangJobState,
    HoldMode,
    JobView,
    NodeReport,
    SlurmChanges,
    SlurmSnapshot,
    Tick,
)
from gangd.daemon_process import Death
from tests.fixtures.core_bench import Bench, only
from tests.fixtures.fake_slurm import FakeSlurm
from tests.fixtures.looks import until
from tests.fixtures.tier import examples

MAIN = JobRules({"main": JobRule(weight=4.0, may_opt_out=True)})


def request(name: str = "job", **more: Any) -> SubmitRequest:
    return SubmitRequest(script="#!/bin/sh\n", name=name, **more)


def test_jobs_with_cores_become_views_and_stay_the_same_objects() -> None:
    slurm = FakeSlurm(nodes=2, cores=2, multiplicity=2, start_time=1000.0)
    for nodes in (2, 1, 2):
        slurm.submit(request(nodes=nodes, tasks_per_node=2, time_limit_minutes=3))
    cores = CoreMap()
    view = ClusterView(cores, Policy())
    view.know_nodes(slurm.nodes())
    first = view.views(slurm.jobs())
    assert [(one.job, cores.unpack(one.cores)) for one in first] == [
        (1, {"n1": [0, 1], "n2": [0, 1]}),
        (2, {"n1": [0, 1]}),
    ], "the third waits"
    assert (first[0].start_s, first[0].end_s) == (1000.0, 1180.0)
    assert all(one is other for one, other in zip(first, view.views(slurm.jobs()), strict=True))
    slurm.suspend(1)
    second = view.views(slurm.jobs())
    assert second[0].state is GangJobState.SUSPENDED
    assert second[1] is first[1]


def test_a_job_without_limit_has_no_end() -> None:
    slurm = FakeSlurm()
    slurm.submit(request())
    assert ClusterView(CoreMap({"n1": 1, "n2": 1}), Policy()).views(slurm.jobs())[0].end_s is None


def test_partition_weights_and_opt_outs_apply() -> None:
    slurm = FakeSlurm(nodes=3)
    for comment, constraint in (
        ("nice gangd=off", None),
        (None, "fast&nogang"),
        ("gangd=offline", "nogangs"),
    ):
        slurm.submit(request(comment=comment, constraint=constraint))
    jobs = [
        replace(job, features=feature)
        for job, feature in zip(slurm.jobs().jobs, (None, "fast&nogang", "nogangs"), strict=True)
    ]
    policy = Policy(MAIN, 1.0, frozenset({"gangd=off"}), frozenset({"nogang"}))
    view = ClusterView(CoreMap({"n1": 1, "n2": 1, "n3": 1}), policy)
    views = view.views(JobSnapshot(tuple(jobs)))
    assert [one.opt_out for one in views] == [True, True, False]
    assert {one.weight for one in views} == {4.0}


@pytest.mark.parametrize(
    ("comment", "most", "weight"),
    [
        ("gangd-weight=0.5", 1.0, 2.0),
        ("polite, gangd-weight=0.25", 1.0, 1.0),
        ("gangd-weight=8", 1.0, 4.0),
        ("gangd-weight=8", 2.0, 8.0),
        ("gangd-weight=2 gangd-weight=2.0,gangd-weight=02", 2.0, 8.0),
        ("gangd-weight=much", 2.0, 4.0),
        ("gangd-weight=-1", 2.0, 4.0),
        ("gangd-weight=nan", 2.0, 4.0),
        ("gangd-weight=1e-9", 2.0, 1 / 1024),
    ],
)
def test_a_job_asks_for_weight_as_far_as_it_may(comment: str, most: float, weight: float) -> None:
    slurm = FakeSlurm()
    slurm.submit(request(comment=comment))
    view = ClusterView(CoreMap({"n1": 1}), Policy(MAIN, most))
    assert view.views(slurm.jobs())[0].weight == weight


@pytest.mark.parametrize(
    ("comment", "allowed", "way"),
    [
        (None, (), HoldMode.YIELD),
        ("gangd-hold=freeze", (), HoldMode.YIELD),
        ("gangd-hold=freeze", (HoldMode.FREEZE,), HoldMode.FREEZE),
        ("mine, gangd-hold=freeze", (HoldMode.FREEZE, HoldMode.YIELD), HoldMode.FREEZE),
        ("gangd-hold=freeze gangd-hold=yield", (HoldMode.FREEZE, HoldMode.YIELD), HoldMode.YIELD),
        ("gangd-hold=sleep xgangd-hold=freeze", (HoldMode.FREEZE,), HoldMode.YIELD),
    ],
)
def test_a_job_is_held_as_its_partition_says_or_as_it_asks_if_it_may(
    comment: str | None, allowed: tuple[HoldMode, ...], way: HoldMode
) -> None:
    slurm = FakeSlurm()
    slurm.submit(request(comment=comment))
    policy = Policy(
        JobRules({"main": JobRule(hold=HoldMode.YIELD)}), hold=HoldMode.FREEZE, job_holds=frozenset(allowed)
    )
    assert ClusterView(CoreMap({"n1": 1}), policy).views(slurm.jobs())[0].hold is way
    others = JobRules({"other": JobRule(hold=HoldMode.YIELD)})
    elsewhere = replace(policy, rules=others, job_holds=frozenset())
    assert ClusterView(CoreMap({"n1": 1}), elsewhere).views(slurm.jobs())[0].hold is HoldMode.FREEZE


def test_components_of_a_heterogeneous_job_get_one_gang() -> None:
    slurm = FakeSlurm(nodes=2)
    slurm.submit(request())
    slurm.submit(request())
    jobs = [replace(job, het_job_id=1) for job in slurm.jobs().jobs]
    view = ClusterView(CoreMap({"n1": 1, "n2": 1}), Policy())
    assert [one.gang for one in view.views(JobSnapshot(tuple(jobs)))] == [1, 1]


def test_a_job_on_an_unknown_node_is_left_out_and_named() -> None:
    slurm = FakeSlurm(nodes=2)
    slurm.submit(request(nodes=2))
    slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1}), Policy())
    assert (view.views(slurm.jobs()), view.unusable) == ((), (1,))


def test_a_job_that_cannot_be_read_is_held_no_more_and_not_forgotten() -> None:
    slurm = FakeSlurm(nodes=2)
    for _ in range(2):
        slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1, "n2": 1}), Policy())
    first = view.views(slurm.jobs())
    assert [one.opt_out for one in first] == [False, False]
    for unreadable in (2, None):
        snapshot = JobSnapshot(slurm.jobs().jobs[:1], (UnreadableJob(unreadable, "no state"),))
        assert view.views(snapshot) == (first[0], replace(first[1], opt_out=True))
        view.set_policy(Policy())
        assert view.views(snapshot) == (first[0], replace(first[1], opt_out=True))
        assert view.views(slurm.jobs()) == first, "it can be read again"
    assert view.views(JobSnapshot((), (UnreadableJob(3, "no state"),))) == (), "nothing is known of it"


def test_states_that_end_a_job_are_terminating() -> None:
    slurm = FakeSlurm()
    slurm.submit(request())
    view = ClusterView(CoreMap({"n1": 1}), Policy())
    [job] = slurm.jobs().jobs
    for state, expected in (
        (SlurmState.COMPLETING, GangJobState.TERMINATING),
        (SlurmState.STOPPED, GangJobState.RUNNING),
        (SlurmState.CONFIGURING, GangJobState.RUNNING),
    ):
        [seen] = view.views(JobSnapshot((replace(job, state=state),)))
        assert seen.state is expected
        assert seen.opt_out is (state is SlurmState.STOPPED)


@contextmanager
def at_work(worker: SlurmWorker) -> Iterator[SlurmWorker]:
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


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
    with at_work(SlurmWorker(slurm, every_s=0.05)) as worker:
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


class Hung(FakeSlurm):
    """Asks by a command that does not end by itself."""

    def __init__(self, marked: Path) -> None:
        super().__init__()
        self.marked = marked

    def jobs(self) -> JobSnapshot:
        body = f"echo $$ >{self.marked}.new; mv {self.marked}.new {self.marked}; exec sleep 600"
        run_command(["sh", "-c", body], None, os.environ, 600)
        return super().jobs()


def test_a_command_that_hangs_ends_with_the_worker(tmp_path: Path) -> None:
    slurm = Hung(tmp_path / "pid")
    worker = SlurmWorker(slurm, every_s=0.05)
    worker.start()
    until(slurm.marked.exists, 30, "the command runs")
    process = psutil.Process(int(slurm.marked.read_text()))
    worker.stop(within_s=0.1)
    psutil.wait_procs([process], timeout=30)
    assert not process.is_running()
    worker.stop(within_s=30)


class Asked(FakeSlurm):
    """Says only of jobs that are not over, as gangd asks; refuses once to say which ended well."""

    asked = 0

    def jobs(self) -> JobSnapshot:
        return JobSnapshot(tuple(job for job in super().jobs().jobs if not job.state.is_over))

    def completed(self) -> frozenset[int]:
        self.asked += 1
        if self.asked == 1:
            raise SlurmRefusedError("slurm_load_jobs error: Access denied")
        return super().completed()


@pytest.mark.slow
@pytest.mark.parametrize("asks", [False, True])
def test_the_worker_asks_which_jobs_ended_well_only_where_they_teach(*, asks: bool) -> None:
    slurm = Asked(nodes=1, cores=4, run_time=lambda _: 60.0)
    jobs = [slurm.submit(request()) for _ in range(3)]
    worker = SlurmWorker(slurm, every_s=0.01)
    worker.asks_ends = asks

    def look_after(end: Callable[[], object]) -> frozenset[int]:
        answers_of(worker, lambda taken: len(taken) >= 2)
        end()
        found = answers_of(worker, lambda taken: len(taken) >= 8)
        assert all(isinstance(one, SlurmObserved) for one in found)
        return frozenset().union(*[one.completed for one in found if isinstance(one, SlurmObserved)])

    with at_work(worker):
        assert look_after(lambda: slurm.cancel(jobs[:1])) == frozenset(), "refused; the look counts"
        assert look_after(lambda: slurm.cancel(jobs[1:2])) == frozenset(), "cancelled is not well"
        assert look_after(lambda: slurm.advance(60)) == (frozenset(jobs[2:]) if asks else frozenset())
    assert slurm.asked == (3 if asks else 0)


def test_the_worker_looks_less_often_while_nothing_changes() -> None:
    with at_work(SlurmWorker(FakeSlurm(), every_s=0.01)) as worker:
        quiet = answers_of(worker, lambda taken: len(taken) >= 8)
    asked_ns = [one.asked_ns for one in quiet if isinstance(one, SlurmObserved)]
    assert asked_ns[7] - asked_ns[6] > 50_000_000  # 10 ms, times 1.5 with each look


def test_the_worker_looks_at_once_when_asked() -> None:
    with at_work(SlurmWorker(FakeSlurm(), every_s=3600)) as worker:
        answers_of(worker, lambda taken: len(taken) == 1)
        worker.ask()
        answers_of(worker, lambda taken: len(taken) == 1)


def test_asking_at_once_for_nothing_becomes_as_rare_as_looking_is() -> None:
    worker = SlurmWorker(FakeSlurm(), every_s=0.5)
    asked_ns = []
    with at_work(worker):
        for _ in range(6):
            [looked] = answers_of(worker, lambda taken: len(taken) == 1)
            assert isinstance(looked, SlurmObserved)
            asked_ns.append(looked.asked_ns)
            worker.ask()
    assert asked_ns[-1] - asked_ns[-2] >= 400_000_000


class BrokenOnce(FakeSlurm):
    """Breaks its reader once, as an unexpected answer does."""

    broken = 0

    def jobs(self) -> JobSnapshot:
        if self.broken < 1:
            self.broken += 1
            raise KeyError("JobState")
        return super().jobs()


def test_an_answer_that_breaks_the_thread_is_reported_and_slurm_is_asked_again() -> None:
    with at_work(SlurmWorker(BrokenOnce(), every_s=0.05)) as worker:
        death, looked = answers_of(worker, lambda taken: len(taken) >= 2)[:2]
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
    with at_work(worker):
        return answers_of(
            worker,
            lambda taken: sum(len(one.ends_s) for one in taken if isinstance(one, LimitsMoved)) >= jobs,
        )


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

    def with_nodes(taken: list[Answer]) -> list[SlurmObserved]:
        return [one for one in taken if isinstance(one, SlurmObserved) and one.nodes is not None]

    with at_work(worker):
        taken = answers_of(worker, lambda taken: len(with_nodes(taken)) >= 2)
        taken += answers_of(worker, lambda taken: len(taken) >= 4)
    assert len(with_nodes(taken)) == 2, "no job came or went since: a minute will do"


NODES, CORES = 3, 2


def job(
    number: int, *places: tuple[int, int], state: SlurmJobState = SlurmJobState.RUNNING, **more: object
) -> SlurmJob:
    held = tuple(NodeCores(f"n{node}", (core,)) for node, core in places)
    known = SlurmJob(
        job_id=number, name=None, user="u", uid=1, partition="main", state=state, reason="None",
        num_nodes=len(held), cores=held, start_time=100, end_time=1000, time_limit_s=900,
    )  # fmt: skip
    return replace(known, **more)  # type: ignore[arg-type]


def a_view(cores: CoreMap | None = None) -> ClusterView:
    return ClusterView(
        cores or CoreMap(dict.fromkeys((f"n{node}" for node in range(NODES)), CORES)), policy_of(Config())
    )


class Source:
    """Returns jobs, and how they differ from those it returned before."""

    def __init__(self) -> None:
        self.jobs: dict[int, SlurmJob] = {}
        self.number = 0

    def tell(self, jobs: dict[int, SlurmJob], *, unreadable: tuple[UnreadableJob, ...] = ()) -> JobSnapshot:
        changed = tuple(one for key, one in jobs.items() if self.jobs.get(key) != one)
        gone = tuple(key for key in self.jobs if key not in jobs)
        self.jobs, self.number = dict(jobs), self.number + 1
        difference = SnapshotDifference(self.number, self.number - 1, changed, gone)
        return JobSnapshot(tuple(jobs.values()), unreadable, difference)


def test_only_what_changed_is_looked_at() -> None:
    view, source = a_view(), Source()
    jobs = {1: job(1, (0, 0)), 2: job(2, (0, 0))}
    first = source.tell(jobs)
    assert view.changes(first) is None
    assert (len(view.views(first)), view.changes(source.tell(jobs))) == (2, ((), ()))
    jobs[3] = job(3, (1, 1))
    jobs[1] = job(1, (0, 0), state=SlurmJobState.COMPLETED)
    del jobs[2]
    changes = view.changes(source.tell(jobs))
    assert changes is not None
    assert ([one.job for one in changes[0]], sorted(changes[1])) == ([3], [1, 2])


@pytest.mark.parametrize(
    "what", ["no change", "an answer was missed", "unreadable", "policy", "reservations", "nodes"]
)
def test_all_jobs_are_looked_at_where_the_difference_is_not_enough(what: str) -> None:
    view, source = a_view(), Source()
    jobs = {1: job(1, (0, 0))}
    view.views(source.tell(jobs))
    following = source.tell(jobs)
    if what == "no change":
        following = replace(following, difference=None)
    elif what == "an answer was missed":
        following = source.tell(jobs)
    elif what == "unreadable":
        following = replace(following, unreadable=(UnreadableJob(1, "torn"),))
    elif what == "policy":
        view.set_policy(policy_of(Config(hold="freeze")))
    elif what == "reservations":
        view.know_reservations([Reservation("r", 500, 900, frozenset({"n0"}))])
    else:
        view.know_nodes([node("n0", 2 * CORES)])
    assert view.changes(following) is None
    assert len(view.views(following)) == (0 if what == "unreadable" else 1) or what == "unreadable"
    assert view.changes(source.tell(jobs)) is None if what in {"no change", "unreadable"} else True


def node(name: str, cores: int) -> SlurmNode:
    return SlurmNode(
        name=name, states=frozenset({"IDLE"}), cores=cores, threads_per_core=1, memory_mib=1,
        cpus_allocated=0, features=frozenset(),
    )  # fmt: skip


@pytest.mark.parametrize("nomultithread", ["0", "1", "0-1"])
@pytest.mark.parametrize("multithread", ["0", "1", "0-1"])
def test_jobs_on_threads_of_one_core_share_the_core(nomultithread: str, multithread: str) -> None:
    """With ``--hint=nomultithread`` and without: Slurm lists CPUs, that is threads; gangd knows cores."""
    two = replace(node("n1", 2), threads_per_core=2)
    cores = CoreMap()
    view = ClusterView(cores, policy_of(Config()))
    view.know_nodes([two])
    jobs = []
    for number, ids in enumerate((nomultithread, multithread, "2-3"), start=1):
        text = f"JobId={number} NodeList=n1 Nodes=n1 CPU_IDs={ids} Mem=1 GRES= "
        jobs.append(job(number, cores=read_cores(text, {"NodeList": "n1"}, {"n1": two}.get)))
    first, second, third = view.views(JobSnapshot(tuple(jobs)))
    assert cores.unpack(first.cores) == cores.unpack(second.cores) == {"n1": [0]}
    assert cores.unpack(third.cores) == {"n1": [1]}


def test_a_job_on_a_node_that_becomes_known_is_seen_although_it_did_not_change() -> None:
    view, source = a_view(), Source()
    jobs = {1: job(1, (0, 0)), 2: job(2, (NODES, 0))}
    view.views(source.tell({}))
    changes = view.changes(source.tell(jobs))
    assert changes is not None
    assert [one.job for one in changes[0]] == [1]
    assert list(view.unusable) == [2]
    view.know_nodes([node(f"n{NODES}", CORES)])
    after = source.tell(jobs)
    assert view.changes(after) is None
    assert [one.job for one in view.views(after)] == [1, 2]
    assert not view.unusable


def test_a_job_that_runs_on_no_known_cores_and_ends_is_forgotten() -> None:
    view, source = a_view(), Source()
    view.views(source.tell({}))
    view.changes(source.tell({2: job(2)}))
    assert list(view.unusable) == [2]
    view.changes(source.tell({}))
    assert not view.unusable


# The core


class World:
    """A core that receives all jobs each time, or what changed."""

    def __init__(self, *, by_changes: bool) -> None:
        self.cores = CoreMap(dict.fromkeys((f"n{number}" for number in range(NODES)), CORES))
        self.view = a_view(self.cores)
        self.core = GangScheduler(CoreSettings(quantum_ns=10**9, grace_ns=0), 0, self.cores)
        self.by_changes = by_changes
        self.now_ns = 0
        for name in self.cores:
            self.core.handle(AgentJoined(0, name))

    def look(self, snapshot: JobSnapshot) -> None:
        changes = self.view.changes(snapshot) if self.by_changes else None
        self.now_ns += 1
        if changes is None:
            self.core.handle(SlurmSnapshot(self.now_ns, self.now_ns, 0.0, self.view.views(snapshot)))
        else:
            self.core.handle(SlurmChanges(self.now_ns, self.now_ns, 0.0, *changes))

    def tick(self) -> None:
        self.now_ns += 10**9
        for name in self.cores:
            self.core.handle(NodeReport(self.now_ns, name))
        self.core.handle(Tick(self.now_ns))

    def facts(self) -> dict[int, object]:
        slices = range(self.core.horizon, self.core.horizon + 4)
        runs = [self.core.owners(number) for number in slices]
        return {
            key: (
                gang.state, sorted(gang.views), gang.weight, gang.cores, self.core.neighbours(key),
                [key in one for one in runs],
            )
            for key, gang in self.core.gangs.items()
        }  # fmt: skip


places = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, CORES - 1)),
    min_size=0,
    max_size=2,
    unique_by=lambda one: one[0],
)

one_job = st.builds(
    lambda number, where, state, comment, leader, start: job(
        number, *where, state=state, comment=comment, het_job_id=leader, start_time=start
    ),
    st.integers(1, 6),
    places,
    st.sampled_from(
        [
            SlurmJobState.RUNNING,
            SlurmJobState.COMPLETING,
            SlurmJobState.SUSPENDED,
            SlurmJobState.PENDING,
            SlurmJobState.COMPLETED,
        ]
    ),
    st.sampled_from([None, "gangd=off"]),
    st.sampled_from([None, None, 1]),
    st.sampled_from([100, 100, 200]),
)


@examples(150)
@given(st.lists(st.lists(one_job, max_size=5), min_size=2, max_size=8))
def test_a_core_given_what_changed_equals_one_given_everything(looks: list[list[SlurmJob]]) -> None:
    whole, some = World(by_changes=False), World(by_changes=True)
    source = Source()
    for look in looks:
        snapshot = source.tell({one.job_id: one for one in sorted(look, key=lambda one: one.job_id)})
        for world in (whole, some):
            world.look(snapshot)
            world.tick()
        assert whole.facts() == some.facts()
        assert whole.view.unusable == some.view.unusable


def test_views_that_are_given_again_as_they_are_change_nothing() -> None:
    world, source = World(by_changes=True), Source()
    jobs = {1: job(1, (0, 0)), 2: job(2, (0, 0))}
    world.look(source.tell(jobs))
    world.tick()
    before = world.facts()
    same: tuple[JobView, ...] = tuple(
        view for gang in world.core.gangs.values() for view in gang.views.values()
    )
    assert world.core.handle(SlurmChanges(world.now_ns, world.now_ns, 0.0, same, (99,))) == []
    assert world.facts() == before


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


def marked_by(slurm: Site) -> list[Answer]:
    worker = SlurmWorker(slurm, every_s=0.02)
    worker.mark_in(MarkField.ADMIN_COMMENT)
    worker.mark([1, 2])
    with at_work(worker):
        taken = answers_of(worker, lambda taken: any(isinstance(one, Marked | Failed) for one in taken))
        worker.mark([1, 2])
        return taken + answers_of(
            worker, lambda more: sum(isinstance(one, SlurmObserved) for one in more) >= 2
        )


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
    with at_work(SlurmWorker(slurm, every_s=0.02)) as worker:
        answers_of(worker, lambda taken: sum(isinstance(one, SlurmObserved) for one in taken) >= 3)
        looks = slurm.node_looks
        slurm._nodes.append("n2")  # a settled cluster: nodes would be asked for in a minute
        slurm.submit(replace(REQUEST, nodes=2))
        slurm.advance(0)
        taken = answers_of(
            worker,
            lambda taken: any(isinstance(one, SlurmObserved) and one.nodes is not None for one in taken),
        )
    [looked] = [one for one in taken if isinstance(one, SlurmObserved) and one.nodes is not None]
    assert {node.name for node in looked.nodes or ()} == {"n1", "n2"}
    assert any(len(job.cores) == 2 for job in looked.snapshot.jobs)
    assert slurm.node_looks == looks + 1


def test_an_agent_of_a_node_that_is_new_has_nodes_asked_for() -> None:
    slurm = Site()
    worker = SlurmWorker(slurm, every_s=3600.0, nodes_soon_s=0.0)

    def with_nodes(taken: list[Answer]) -> bool:
        return any(isinstance(one, SlurmObserved) and one.nodes is not None for one in taken)

    with at_work(worker):
        answers_of(worker, with_nodes)
        worker.ask_nodes()
        answers_of(worker, with_nodes)
    assert slurm.node_looks == 2
