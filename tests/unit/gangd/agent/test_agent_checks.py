"""The second look: freezes that do not settle, what strangers write, deadly signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from gangd.agent.agenda import Agenda, AgendaItem
from gangd.agent.freeze_verifier import DOUBT_NS, Checks, ExternalChangeTracker, Next, Patience, Settling
from gangd.agent.hold_controller import HoldController, Lease
from gangd.agent.report_buffer import Sender, SliceBook
from gangd.agent.steps import StepTable
from gangd.freezer.freezer_choice import RecordingFreezer
from gangd.freezer.holder import StepKey, StepState, Traits
from gangd.wire import Report

KEY = StepKey(1, "0")
MS = 1_000_000

PATIENCE = Patience(patience_ns=100, retries=2)


class StickyFreezer(RecordingFreezer):
    """Stays in FREEZING for a number of freezes."""

    traits = Traits(stops_are_strange=True)
    sticks = 0

    def state(self, key: StepKey) -> StepState:
        state = super().state(key)
        freezes = sum(what == "freeze" for what, _ in self.writes)
        return StepState.FREEZING if state is StepState.FROZEN and 0 < freezes <= self.sticks else state


class Bench:
    """Checks over a recording freezer, with a clock in the test's hand."""

    def __init__(self, freezer: StickyFreezer | None = None) -> None:
        self.freezer = freezer or StickyFreezer([KEY])
        self.now_ns = 0
        self.gate = HoldController(self.freezer, Lease(None), lambda: self.now_ns)
        self.gate.lease.set_until(2**62)
        self.table = StepTable(self.gate)
        self.table.refresh(0)
        self.memory = ExternalChangeTracker()
        self.book = SliceBook()
        self.agenda = Agenda()
        patience = Patience(patience_ns=50 * MS, retries=2)
        self.checks = Checks(self.gate, self.table, self.memory, self.book, self.agenda, patience)

    def pass_time(self, ms: int) -> None:
        """Do what the loop does, millisecond by millisecond."""
        for _ in range(ms):
            self.now_ns += MS
            if self.agenda.may(AgendaItem.SETTLE, self.now_ns):
                self.checks.on_states([KEY], self.now_ns)
                if KEY not in self.checks.stuck_at(self.now_ns):
                    self.gate.apply((KEY,), ())

    def report(self) -> Report:
        return self.book.report(Sender("a", bytes(16), None, 0, 0), 0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_freeze_that_takes_effect_needs_no_second_look(bench: Bench) -> None:
    bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 1)
    assert bench.agenda.at(AgendaItem.SETTLE) is None
    assert bench.report().faults == ()


def test_freeze_that_sticks_once_is_thawed_briefly_and_repeated(bench: Bench) -> None:
    bench.freezer.sticks = 1
    bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 0)
    bench.pass_time(200)
    assert bench.freezer.writes == [("freeze", KEY), ("thaw", KEY), ("freeze", KEY)]
    assert bench.agenda.at(AgendaItem.SETTLE) is None
    assert [(fault.kind, fault.job) for fault in bench.report().faults] == [("freeze_retried", 1)]


def test_freeze_that_always_sticks_is_given_up_for_this_slice(bench: Bench) -> None:
    bench.freezer.sticks = 99
    bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 0)
    bench.pass_time(1_000)
    assert sum(what == "freeze" for what, _ in bench.freezer.writes) == 3
    assert bench.checks.stuck_at(bench.now_ns) == {KEY}
    assert {fault.kind for fault in bench.report().faults} == {"freeze_retried", "freeze_failed"}
    bench.checks.begin_slice()
    assert bench.checks.stuck_at(bench.now_ns) == frozenset()


def test_step_frozen_by_another_user_is_reported(bench: Bench) -> None:
    bench.freezer.frozen.add(KEY)
    bench.checks.on_states([KEY], 1)
    (found,) = bench.report().found
    assert (found.job, found.left, found.found) == (1, "thawed", "froze")
    assert bench.freezer.writes == []


def test_step_thawed_under_us_is_given_back_and_reported(bench: Bench) -> None:
    bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 1)
    bench.freezer.frozen.discard(KEY)
    bench.checks.on_states([KEY], 2)
    assert bench.gate.held == {}
    assert bench.report().found == ()  # it may be about to end
    bench.freezer.members[KEY] = (4_000_000,)
    bench.table.refresh(3)
    bench.checks.on_states([KEY], 2 + DOUBT_NS)
    (found,) = bench.report().found
    assert (found.left, found.found) == ("frozen", "thawed")


def test_step_that_was_thawed_to_be_killed_raises_no_alarm(bench: Bench) -> None:
    bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 1)
    bench.freezer.frozen.discard(KEY)
    bench.checks.on_states([KEY], 2)
    bench.freezer.steps.discard(KEY)
    bench.table.refresh(3)
    bench.checks.on_states([], 2 + DOUBT_NS)
    assert bench.report().found == ()


def test_signal_that_waits_for_a_held_process_latches_the_job(bench: Bench) -> None:
    import subprocess
    import time

    child = subprocess.Popen(["sleep", "100"])
    try:
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)  # it has stopped: else SIGTERM would come first
        bench.freezer.members[KEY] = (child.pid,)
        bench.table.refresh(1)
        bench.gate.apply((KEY,), ())
        bench.checks.on_signals([KEY], 2)
        assert bench.memory.dying_at(3) == frozenset()
        child.send_signal(signal.SIGTERM)  # waits: the process is stopped
        deadline = time.monotonic() + 5
        while not bench.memory.dying_at(3) and time.monotonic() < deadline:
            bench.checks.on_signals([KEY], 3)
        assert bench.memory.dying_at(3) == {1}
        assert bench.report().dying == (1,)
    finally:
        child.kill()
        child.wait()


def test_freeze_of_ours_during_a_look_is_not_taken_for_a_strangers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = bench.freezer.state

    def late(key: StepKey) -> StepState:
        monkeypatch.setattr(bench.freezer, "state", plain)
        bench.gate.apply((key,), ())  # the switch thread's, just now
        return plain(key)

    monkeypatch.setattr(bench.freezer, "state", late)
    bench.checks.on_states([KEY], 1)
    assert bench.memory.strangers() == {}
    assert bench.report().found == ()
    assert KEY in bench.gate.held


class SwitchInBetween(StickyFreezer):
    """The switch thread acts while the loop asks for a state."""

    switch: Callable[[], object] | None = None

    def state(self, key: StepKey) -> StepState:
        state = super().state(key)
        switch, self.switch = self.switch, None
        if switch is not None:
            switch()
        return state


def test_switch_between_looking_and_judging_is_no_stranger() -> None:
    freezer = SwitchInBetween([KEY])
    bench = Bench(freezer)
    bench.gate.apply((KEY,), ())
    freezer.switch = lambda: bench.gate.apply((), (KEY,))
    bench.checks.on_states([KEY], 1)
    freezer.switch = lambda: bench.gate.apply((KEY,), ())
    bench.checks.on_states([KEY], 2)
    assert bench.report().found == ()
    assert not bench.memory.strangers()


def test_frozen_or_gone_is_done() -> None:
    start = Settling(0, 0)
    assert start.on_state(StepState.FROZEN, 1, PATIENCE) == (start, Next.DONE)
    assert start.on_state(StepState.GONE, 500, PATIENCE) == (start, Next.DONE)


def test_stuck_freeze_is_retried_then_given_up() -> None:
    settling, said = Settling(0, 0), []
    for now in range(0, 500, 50):
        settling, what = settling.on_state(StepState.FREEZING, now, PATIENCE)
        said.append(what)
    wait, retry = Next.WAIT, Next.RETRY
    assert said == [wait, wait, retry, wait, retry, wait, Next.GIVE_UP, *[Next.GIVE_UP] * 3]
    assert settling.began_ns == 0


def test_looks_soon_at_first_and_then_rarely() -> None:
    settling = Settling(0, 0)
    assert settling.look_ns(0) == 16_000_000
    assert settling.look_ns(20_000_000) == 40_000_000
    assert settling.look_ns(80_000_000) == 130_000_000
