"""An agent's decisions, its hold controller, and the bound on its work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.agent import agent_loop
from gangd.agent.agenda import Agenda
from gangd.agent.agent_loop import RECOVERY_NS, Loop
from gangd.agent.decide import STEPD_NS, SUSPEND_NS, HoldLimits, Situation, StepView, Why, decide
from gangd.agent.freeze_verifier import Checks, ExternalChangeTracker
from gangd.agent.hold_controller import HoldController, Lease
from gangd.agent.job_meters import JobMeters
from gangd.agent.planned_switches import PreparedSwitch
from gangd.agent.report_buffer import SliceBook
from gangd.agent.steps import StepTable
from gangd.agent.switch_thread import Switch
from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.freezer_choice import RecordingFreezer
from gangd.freezer.holder import Did, HoldOutcome, StepKey
from gangd.freezer.membership import STRAY
from gangd.freezer.procfs import WORK, WORK_NS, WorkBudget, scan
from gangd.freezer.tree import CGROUP1
from gangd.guardian.statefile import StateFile, Word
from gangd.hold.deprioritizer import BothWays
from tests.fixtures.gang_host import FakeV1
from tests.fixtures.gang_simulated import SECOND, SimulatedAgent
from tests.fixtures.no_ledger import NoLedger
from tests.fixtures.recording_yielder import RecordingYielder

BATCH, ZERO, OTHER = StepKey(1, "batch"), StepKey(1, "0"), StepKey(2, "batch")
LIMITS = HoldLimits(grace_ns=200, longest_ns=5_000)
OLD = tuple(StepView(key, 0) for key in (BATCH, ZERO, OTHER))
PLAIN = Situation(now_ns=1_000, open=True, planned=frozenset({1}), steps=OLD)


def test_holds_all_steps_of_planned_jobs_and_no_others() -> None:
    verdict = decide(PLAIN, LIMITS)
    assert verdict.hold == {BATCH, ZERO}
    assert verdict.spared == {}


def test_nothing_is_held_while_closed() -> None:
    verdict = decide(replace(PLAIN, open=False, ours={BATCH: 900}), LIMITS)
    assert (verdict.hold, verdict.spared) == (frozenset(), {BATCH: Why.CLOSED, ZERO: Why.CLOSED})


def test_dying_job_is_not_held() -> None:
    assert decide(replace(PLAIN, dying=frozenset({1})), LIMITS).hold == frozenset()


def test_step_with_slurmstepd_is_not_held_but_its_siblings_are() -> None:
    steps = (StepView(BATCH, 0, has_stepd=True), StepView(ZERO, 0))
    verdict = decide(replace(PLAIN, steps=steps, now_ns=STEPD_NS), LIMITS)
    assert verdict.hold == {ZERO}
    assert verdict.spared == {BATCH: Why.SLURMSTEPD}


def test_step_whose_tasks_slurmstepd_has_yet_to_start_is_launching() -> None:
    verdict = decide(replace(PLAIN, steps=(StepView(BATCH, 0, has_stepd=True),)), LIMITS)
    assert (verdict.spared, verdict.again_ns) == ({BATCH: Why.LAUNCHING}, STEPD_NS)


def test_new_step_of_a_held_job_runs_for_its_launch_grace_and_no_longer() -> None:
    situation = replace(PLAIN, steps=(StepView(BATCH, 0), StepView(ZERO, 900)))
    verdict = decide(situation, LIMITS)
    assert verdict.hold == {BATCH}
    assert verdict.spared == {ZERO: Why.LAUNCHING}
    assert verdict.again_ns == 1_100
    assert decide(replace(situation, now_ns=1_100), LIMITS).hold == {BATCH, ZERO}


def test_stuck_step_runs() -> None:
    assert decide(replace(PLAIN, stuck=frozenset({ZERO})), LIMITS).hold == {BATCH}


def test_nothing_is_held_longer_than_the_limit() -> None:
    situation = replace(PLAIN, ours={BATCH: 500, ZERO: 600})
    assert decide(situation, LIMITS).again_ns == 5_500
    verdict = decide(replace(situation, now_ns=5_500), LIMITS)
    assert verdict.hold == {ZERO}
    assert verdict.spared == {BATCH: Why.LONG}


def test_site_may_let_extern_steps_run() -> None:
    extern = StepKey(1, "extern")
    situation = replace(PLAIN, steps=(*OLD, StepView(extern, 0)))
    assert extern in decide(situation, LIMITS).hold
    assert decide(situation, replace(LIMITS, hold_extern=False)).spared == {extern: Why.EXTERN}


def test_strays_are_never_frozen_but_held_with_a_job_that_yields() -> None:
    stray = StepKey(1, STRAY)
    situation = replace(PLAIN, steps=(*OLD, StepView(stray, 0)))
    assert decide(situation, LIMITS).spared == {stray: Why.STRAY}
    assert stray in decide(replace(situation, yielding=frozenset({1})), LIMITS).hold


def test_strangers_step_is_left_alone_and_its_siblings_are_thawed_after_a_while() -> None:
    situation = replace(PLAIN, ours={ZERO: 900}, external={BATCH: 950})
    verdict = decide(situation, LIMITS)
    assert verdict.hold == {ZERO}
    assert verdict.again_ns == 950 + SUSPEND_NS
    later = decide(replace(situation, now_ns=950 + SUSPEND_NS), LIMITS)
    assert (later.hold, later.spared) == (frozenset(), {BATCH: Why.EXTERNAL, ZERO: Why.EXTERNAL})


def test_strangers_job_is_not_frozen_anew() -> None:
    assert decide(replace(PLAIN, external={BATCH: 950}), LIMITS).hold == frozenset()


keys = st.builds(StepKey, st.integers(1, 4), st.sampled_from(["batch", "0", "extern"]))

situations = st.builds(
    Situation,
    now_ns=st.integers(0, 10_000),
    open=st.booleans(),
    planned=st.frozensets(st.integers(1, 4)),
    steps=st.lists(
        st.builds(StepView, keys, st.integers(0, 10_000), st.booleans()), unique_by=lambda view: view.key
    ).map(tuple),
    ours=st.dictionaries(keys, st.integers(0, 10_000)),
    dying=st.frozensets(st.integers(1, 4)),
    external=st.dictionaries(keys, st.integers(0, 10_000)),
    stuck=st.frozensets(keys),
)


@given(situations)
def test_whatever_the_situation_the_rules_hold(situation: Situation) -> None:
    verdict = decide(situation, LIMITS)
    views = {view.key: view for view in situation.steps}
    for key in verdict.hold:
        assert situation.open
        assert key in views
        assert key.job not in situation.dying
        assert key not in situation.external
        new = key not in situation.ours
        if new:
            assert key.job in situation.planned
            assert not views[key].has_stepd
            assert key not in situation.stuck
            assert situation.now_ns >= views[key].first_seen_ns + LIMITS.grace_ns
    assert not verdict.hold & verdict.spared.keys()
    assert verdict.again_ns is None or verdict.again_ns > situation.now_ns


A, B = StepKey(1, "0"), StepKey(2, "0")


class Clock:
    """A clock that a test sets, or that walks through a script."""

    def __init__(self) -> None:
        self.now_ns = 1_000
        self.script: list[int] = []

    def __call__(self) -> int:
        if self.script:
            self.now_ns = self.script.pop(0)
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def freezer() -> RecordingFreezer:
    recording = RecordingFreezer([A, B])
    recording.adopt(recording.look())
    return recording


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateFile]:
    file = StateFile.create(tmp_path / "agent-a.state", "a", "/")
    yield file
    file.close()


@pytest.fixture
def gate(freezer: RecordingFreezer, clock: Clock, state: StateFile) -> HoldController:
    gate = HoldController(freezer, Lease(state), clock)
    gate.lease.set_until(10_000)
    return gate


def test_freezes_the_outgoing_before_it_thaws_the_incoming(
    gate: HoldController, freezer: RecordingFreezer
) -> None:
    gate.apply((A,), ())
    gate.apply((B,), (A,))
    assert freezer.writes == [("freeze", A), ("freeze", B), ("thaw", A)]
    assert set(gate.held) == {B}


def test_without_a_lease_everything_is_thawed_instead(
    gate: HoldController, freezer: RecordingFreezer, clock: Clock
) -> None:
    gate.apply((A,), ())
    clock.now_ns = 10_000
    assert gate.apply((B,), ()).refused
    assert freezer.frozen == set()
    assert gate.held == {}


def test_lease_that_ends_between_check_and_write_undoes_the_write(
    gate: HoldController, freezer: RecordingFreezer, clock: Clock
) -> None:
    clock.script = [9_999, 9_999, 50_000]
    assert gate.apply((A,), ()).refused
    assert freezer.writes == [("freeze", A), ("thaw", A)]


def test_operator_can_pause_freezing(
    gate: HoldController, freezer: RecordingFreezer, state: StateFile
) -> None:
    state.set_word(Word.PAUSED_UNTIL_NS, 5_000)
    assert gate.apply((A,), ()).refused
    assert freezer.frozen == set()


def test_barred_job_is_not_frozen_whatever_was_prepared(
    gate: HoldController, freezer: RecordingFreezer
) -> None:
    gate.bar(frozenset({1}))
    gate.apply((A, B), ())
    assert freezer.frozen == {B}


def test_decision_of_an_earlier_turn_is_not_applied(gate: HoldController, freezer: RecordingFreezer) -> None:
    turn = gate.turn
    gate.apply((A,), (), next_turn=True)
    gate.apply((B,), (A,), turn=turn)
    assert freezer.frozen == {A}


def test_disowned_step_stays_frozen_and_is_not_thawed_again(
    gate: HoldController, freezer: RecordingFreezer
) -> None:
    gate.apply((A,), ())
    gate.disown((A,))
    gate.thaw_all()
    assert freezer.frozen == {A}


def test_vanished_step_is_no_longer_held(gate: HoldController, freezer: RecordingFreezer) -> None:
    gate.apply((A, B), ())
    freezer.steps.discard(A)
    gate.adopt(freezer.look())
    assert set(gate.held) == {B}
    assert gate.apply((A,), ()).outcomes[0].did is Did.GONE


class Written:
    """Stands in for the watch of control files: the freezer's own writes, and those of a test."""

    def __init__(self, freezer: RecordingFreezer) -> None:
        self.freezer = freezer
        self.seen = 0
        self.external: set[StepKey] = set()

    def written(self) -> set[StepKey]:
        keys = self.external | {key for _, key in self.freezer.writes[self.seen :]}
        self.seen, self.external = len(self.freezer.writes), set()
        return keys

    def set_files(self, files: dict[str, StepKey]) -> bool:
        return not files

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def written(gate: HoldController, freezer: RecordingFreezer) -> Written:
    watch = Written(freezer)
    gate.watch = watch  # type: ignore[assignment]
    return watch


def test_own_writes_are_not_those_of_others(gate: HoldController, written: Written) -> None:
    gate.apply((A,), ())
    gate.apply((B,), (A,))
    gate.disown((B,))
    assert gate.strange() == set()


def test_what_a_stranger_wrote_is_not_thawed_before_it_was_looked_at(
    gate: HoldController, freezer: RecordingFreezer, written: Written
) -> None:
    gate.apply((A, B), ())
    written.external = {A}
    gate.apply((), (A, B))
    assert freezer.frozen == {A}
    assert (set(gate.held), gate.strange()) == ({A}, {A})
    gate.apply((), (A,))
    assert freezer.frozen == {A}  # it is known who wrote, but not yet what
    gate.settle(A)
    gate.apply((), (A,))
    assert freezer.frozen == set()


def test_what_a_stranger_wrote_is_not_frozen_before_it_was_looked_at(
    gate: HoldController, freezer: RecordingFreezer, written: Written
) -> None:
    """Slurm thaws a step to end it. Frozen on top of that, it would look frozen by Slurm, and be left so."""
    written.external = {A}
    gate.apply((A, B), ())
    assert freezer.frozen == {B}
    assert set(gate.held) == {B}
    gate.settle(A)
    gate.apply((A,), ())
    assert freezer.frozen == {A, B}


def test_what_another_wrote_is_not_thawed_by_beginning_to_yield(
    freezer: RecordingFreezer, clock: Clock, state: StateFile
) -> None:
    """Slurm freezes a step that is held already, and its job is let yield for that: it stays frozen."""
    both = BothWays(freezer, RecordingYielder())
    gate = HoldController(both, Lease(state), clock)
    gate.lease.set_until(10_000)
    gate.watch = watch = Written(freezer)  # type: ignore[assignment]
    gate.apply((A,), ())
    watch.external = {A}
    both.yielding = frozenset({A.job})
    gate.let_yield(both.yielding)
    gate.apply((A,), ())
    assert freezer.frozen == {A}
    gate.settle(A)
    gate.apply((A,), ())
    assert freezer.frozen == set()


def test_thaw_of_all_spares_nothing(
    gate: HoldController, freezer: RecordingFreezer, written: Written
) -> None:
    gate.apply((A,), ())
    written.external = {A}
    gate.thaw_all()
    assert freezer.frozen == set()


def test_switch_acts_at_its_instant_and_once(
    gate: HoldController, freezer: RecordingFreezer, clock: Clock
) -> None:
    switch = Switch(gate, clock)
    prepared = PreparedSwitch(7, 1, 2_000, (A,), ())
    switch.prepare(prepared)
    switch.fire()
    assert freezer.frozen == set()
    assert switch.due_ns() == 2_000
    clock.now_ns = 2_300
    switch.fire()
    (switched,) = switch.collect()
    assert (switched.late_ns, switched.held) == (300, frozenset({1}))
    switch.prepare(prepared)
    switch.fire()
    assert switch.collect() == []


def test_switch_thaws_everything_when_the_lease_ends(
    gate: HoldController, freezer: RecordingFreezer, clock: Clock
) -> None:
    switch = Switch(gate, clock)
    switch.prepare(PreparedSwitch(7, 1, 1_000, (A,), ()))
    switch.fire()
    assert switch.due_ns() == 10_000
    clock.now_ns = 10_000
    switch.fire()
    assert freezer.frozen == set()
    assert len(switch.expired) == 1


def test_who_goes_through_what_is_held_is_not_disturbed_by_a_switch(gate: HoldController) -> None:
    """The loop reads what is held while the switch thread holds and thaws."""
    gate.apply((A, B), ())
    keys = iter(gate.held)
    seen = {next(keys)}
    gate.apply((), (A, B))
    assert seen | set(keys) == {A, B}
    assert not gate.held


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
    agent.rotate((1,), (1,), run_ns=2 * SECOND)
    assert agent.held() == {1}
    nothing = cast("Any", None)
    log = cast("Any", lambda event, **_: logged.append(event))
    loop = Loop(agent.node, nothing, nothing, nothing, nothing, log, nothing, nothing)
    loop._exhausted(signal.SIGXCPU, None)
    assert not host.fifo
    agent.node.on_plan(agent.now_ns)  # whatever the loop was about: nothing renews the lease now
    assert not agent.gate.lease.valid(agent.now_ns)
    loop._take_exhaustion(agent.now_ns)
    assert agent.holds_nothing(2 * SECOND)
    assert "exhausted" in {fault.kind for report in agent.reports for fault in report.faults}
    loop._recover(agent.now_ns)
    assert not host.fifo
    agent.run(RECOVERY_NS)
    loop._recover(agent.now_ns)
    assert host.fifo
    agent.run(SECOND)
    assert agent.held() == {1}
    assert logged == ["exhausted", "recovered"]
