"""Bounded work: pauses in loops, with the lock free, and what follows from SIGXCPU; no real clock."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gangd.agent import agent_loop
from gangd.agent.agenda import Agenda
from gangd.agent.agent_loop import RECOVERY_NS, Loop
from gangd.agent.freeze_verifier import Checks, ExternalChangeTracker
from gangd.agent.hold_controller import HoldController, Lease
from gangd.agent.job_meters import JobMeters
from gangd.agent.report_buffer import SliceBook
from gangd.agent.steps import StepTable
from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.holder import Did, HoldOutcome, StepKey
from gangd.freezer.procfs import WORK, WORK_NS, WorkBudget, scan
from gangd.freezer.tree import CGROUP1
from tests.fixtures.gang_host import FakeV1
from tests.fixtures.gang_simulated import SECOND, SimulatedAgent
from tests.fixtures.no_ledger import NoLedger

ITEM_NS = WORK_NS // 20


class Work:
    """The agent's budget with a clock that advances by 1 ms whenever it is read: once an item of a loop."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.items = 0
        self.pauses = 0
        self.opened = 0
        self.most_opened = 0
        self.in_pause: Callable[[], object] = lambda: None

    def clock(self) -> int:
        self.now_ns += ITEM_NS
        self.items += 1
        self.most_opened, self.opened = max(self.most_opened, self.opened), 0
        return self.now_ns

    def sleep(self, _: float) -> None:
        self.pauses += 1
        self.in_pause()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    work = Work()
    monkeypatch.setattr(WORK, "_clock", work.clock)
    monkeypatch.setattr(WORK, "_sleep", work.sleep)
    real = os.open

    def counted(*words: Any, **more: Any) -> int:
        work.opened += 1
        return real(*words, **more)

    monkeypatch.setattr(os, "open", counted)
    WORK.renew()
    yield work
    monkeypatch.undo()
    WORK.renew()


class Bench:
    """A node's steps in a fake hierarchy, ``processes`` each, and what looks at them."""

    def __init__(self, host: FakeV1, steps: int, processes: int) -> None:
        for job in range(1, steps + 1):
            first = 5_000_000 + processes * job
            host.step(job, "0", pids=tuple(range(first, first + processes)))
        self.freezer = CgroupFreezer(host.root, CGROUP1, "a", NoLedger())
        self.gate = HoldController(self.freezer, Lease(None))
        self.gate.lease.set_until(2**62)
        self.table = StepTable(self.gate)
        self.memory, self.book = ExternalChangeTracker(), SliceBook()
        self.checks = Checks(self.gate, self.table, self.memory, self.book, Agenda())
        self.meters = JobMeters()

    def look(self) -> None:
        self.table.refresh(0)
        self.meters.track({job: self.table.pids_of_job(job) for job in self.table.jobs()}, 0)
        keys = self.table.keys_of(self.table.jobs())
        self.checks.on_states(keys, 0)
        self.checks.on_signals(keys, 0)
        for job in self.table.jobs():
            self.meters.sample(job, self.table.used_ns(job), 0)


def test_budget_is_spent_after_20_ms_and_counts_anew_after_a_pause() -> None:
    now, slept = [0], list[float]()
    budget = WorkBudget(lambda: now[0], slept.append)
    now[0] = WORK_NS - 1
    budget.pause_if_spent()
    assert not slept
    now[0] = WORK_NS
    budget.pause_if_spent()
    assert len(slept) == 1
    assert slept[0] > 0
    now[0] += WORK_NS - 1
    assert not budget.is_spent()
    budget.renew()
    now[0] += 1
    assert not budget.is_spent()


@pytest.mark.parametrize(("steps", "processes"), [(120, 2), (2, 120)], ids=["many steps", "many processes"])
def test_look_pauses_after_a_bounded_number_of_steps_or_processes(
    fake_v1: FakeV1, work: Work, steps: int, processes: int
) -> None:
    bench = Bench(fake_v1, steps, processes)
    bench.look()
    assert len(bench.table.views()) == steps
    assert all(len(bench.table.pids_of_job(job)) == processes for job in range(1, steps + 1))
    assert work.items >= 240
    assert work.pauses >= work.items // 25
    assert work.most_opened <= 16  # files of one step; a look at everything opens a thousand


@pytest.mark.parametrize("gone", [0, 90])
def test_look_with_pauses_finds_what_a_look_without_them_finds(
    fake_v1: FakeV1, work: Work, gone: int
) -> None:
    bench = Bench(fake_v1, 100, 3)
    bench.look()
    for job in range(1, gone + 1):
        fake_v1.remove(fake_v1.root / f"slurm_a/uid_7/job_{job}/step_0")
    bench.table.refresh(1)
    for _ in range(8):  # where link counts do not tell, folders are listed now and then
        bench.table.refresh(1)
    at_once = Bench.__new__(Bench)
    at_once.freezer = CgroupFreezer(fake_v1.root, CGROUP1, "a", NoLedger())
    at_once.table = StepTable(HoldController(at_once.freezer, Lease(None)))
    work.in_pause = lambda: pytest.fail("no pause is due")
    WORK._since_ns = 2**62
    at_once.table.refresh(1)
    assert {view.key for view in bench.table.views()} == {view.key for view in at_once.table.views()}
    assert len(bench.table.jobs()) == 100 - gone
    for job in at_once.table.jobs():
        assert bench.table.pids_of_job(job) == at_once.table.pids_of_job(job)


def test_switch_is_possible_in_a_pause_of_adopting_steps(fake_v1: FakeV1, work: Work) -> None:
    bench = Bench(fake_v1, 3, 1)
    bench.look()
    key, outcomes = StepKey(1, "0"), list[HoldOutcome]()
    for job in range(4, 200):
        fake_v1.step(job, "0")

    def switch() -> None:
        if not outcomes:  # the gate's lock is free: this does not wait
            outcomes.extend(bench.gate.apply((key,), ()).outcomes)

    found = bench.freezer.look()
    work.in_pause = switch
    bench.gate.adopt(found)
    assert [outcome.did for outcome in outcomes] == [Did.WROTE]
    assert key in bench.gate.held


def test_search_of_all_processes_pauses(tmp_path: Path, work: Work) -> None:
    for pid in range(200):
        (tmp_path / str(pid)).mkdir()
    assert list(scan(tmp_path)) == []
    assert work.pauses >= 8


def test_failed_look_leaves_all_as_it_was(fake_v1: FakeV1, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(fake_v1, 3, 2)
    bench.look()
    before = bench.table.views(), bench.table.jobs()
    fake_v1.step(9, "0", pids=(5_900_000,))
    fake_v1.remove(fake_v1.root / "slurm_a/uid_7/job_1/step_0")
    monkeypatch.setattr(bench.freezer, "pids", lambda _: (_ for _ in ()).throw(OSError(24, "no descriptor")))
    bench.freezer._links = None
    with pytest.raises(OSError, match="no descriptor"):
        bench.table.refresh(1)
    assert (bench.table.views(), bench.table.jobs()) == before
    monkeypatch.undo()
    changes = bench.table.refresh(2)
    assert StepKey(9, "0") in changes.new
    assert changes.ended == {1}


class Host:
    """Threads of the agent and their policies, as the kernel has them."""

    def __init__(self) -> None:
        self.fifo = True

    def demote(self) -> dict[int, tuple[int, int]]:
        self.fifo = False
        return {1: (os.SCHED_FIFO, 10)}

    def promote(self, had: dict[int, tuple[int, int]]) -> None:
        assert had == {1: (os.SCHED_FIFO, 10)}
        self.fifo = True


def test_exhausted_agent_gives_up_its_priority_resumes_all_jobs_and_recovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, logged = Host(), list[str]()
    monkeypatch.setattr(agent_loop, "demote", host.demote)
    monkeypatch.setattr(agent_loop, "promote", host.promote)
    agent = SimulatedAgent(StepKey(1, "0"))
    agent.join()
    agent.rotate((1,), (1,))
    agent.run(2 * SECOND)
    assert agent.held() == {1}
    nothing = cast("Any", None)
    log = cast("Any", lambda event, **_: logged.append(event))
    loop = Loop(agent.node, nothing, nothing, nothing, nothing, log, nothing, nothing)
    loop._exhausted(signal.SIGXCPU, None)
    assert not host.fifo
    agent.node.on_plan(agent.now_ns)  # whatever the loop was about: nothing renews the lease now
    assert not agent.gate.lease.valid(agent.now_ns)
    loop._take_exhaustion(agent.now_ns)
    assert agent.held() == set()
    agent.run(2 * SECOND)
    assert agent.held() == set()
    assert "exhausted" in {fault.kind for report in agent.reports for fault in report.faults}
    loop._recover(agent.now_ns)
    assert not host.fifo
    agent.run(RECOVERY_NS)
    loop._recover(agent.now_ns)
    assert host.fifo
    agent.run(SECOND)
    assert agent.held() == {1}
    assert logged == ["exhausted", "recovered"]
