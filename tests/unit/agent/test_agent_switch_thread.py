from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator

import pytest

from gangd.agent.gate import Gate, Lease
from gangd.agent.switch import OVERDUE_NS, RETRY_NS, Prepared, Switch, Switched, SwitchThread
from gangd.freezer.model import Did, Outcome, StepKey
from gangd.freezer.recording import RecordingFreezer
from tests.fixtures.gang_host import until

A, B = StepKey(1, "0"), StepKey(2, "0")


@pytest.fixture
def freezer() -> RecordingFreezer:
    recording = RecordingFreezer([A, B])
    recording.adopt(recording.look())
    return recording


@pytest.fixture
def gate(freezer: RecordingFreezer) -> Gate:
    gate = Gate(freezer, Lease(None))
    gate.lease.set_until(time.monotonic_ns() + 10**12)
    return gate


@pytest.fixture
def switch(gate: Gate) -> Iterator[SwitchThread]:
    thread = SwitchThread(gate, lambda: None)
    yield thread
    thread.stop()


def made(switch: SwitchThread) -> list[Switched]:
    until(switch.has_made, what="a switch")
    return switch.collect()


def test_never_acts_before_the_instant(switch: SwitchThread, freezer: RecordingFreezer) -> None:
    for number in range(20):
        instant_ns = time.monotonic_ns() + 5_000_000
        switch.prepare(Prepared(number, 1, instant_ns, (A,), (B,)))
        (switched,) = made(switch)
        assert switched.prepared.number == number
        assert switched.late_ns >= 0
    assert freezer.frozen == {A}


def test_instant_that_has_passed_is_acted_on_at_once(switch: SwitchThread) -> None:
    switch.prepare(Prepared(1, 1, 1, (A,), ()))
    (switched,) = made(switch)
    assert switched.held == {1}


def test_replaced_switch_is_not_made(switch: SwitchThread, freezer: RecordingFreezer) -> None:
    switch.prepare(Prepared(1, 1, time.monotonic_ns() + 10**12, (A,), ()))
    switch.prepare(Prepared(2, 1, time.monotonic_ns(), (B,), ()))
    (switched,) = made(switch)
    assert switched.prepared.number == 2
    assert freezer.frozen == {B}


def test_end_of_the_lease_thaws_without_the_loop(
    switch: SwitchThread, gate: Gate, freezer: RecordingFreezer
) -> None:
    switch.prepare(Prepared(1, 1, time.monotonic_ns(), (A,), ()))
    made(switch)
    gate.lease.set_until(time.monotonic_ns() + 50_000_000)
    switch.rearm()
    until(lambda: freezer.frozen == set(), what="thaw at the end of the lease")
    assert select.select([switch.alarm_fd], [], [], 10)[0]


def test_failure_in_the_thread_is_told_to_the_loop(gate: Gate, freezer: RecordingFreezer) -> None:
    def fail(key: StepKey) -> Outcome:
        raise RuntimeError("broken")

    freezer.hold = fail  # type: ignore[method-assign]
    switch = SwitchThread(gate, lambda: None)
    switch.prepare(Prepared(1, 1, 1, (A,), ()))
    assert select.select([switch.alarm_fd], [], [], 10)[0]
    assert isinstance(switch.failure, RuntimeError)
    switch.stop()


def test_thread_that_cannot_begin_is_told(gate: Gate) -> None:
    def refused() -> None:
        raise OSError("no priority")

    thread = SwitchThread(gate, refused)
    assert select.select([thread.alarm_fd], [], [], 5)[0]
    assert isinstance(thread.failure, OSError)
    until(lambda: not thread.is_well(time.monotonic_ns()), what="the end of the thread")
    thread.stop()


class Stuck(RecordingFreezer):
    """Never comes back from a write, until it may."""

    def __init__(self) -> None:
        super().__init__([A])
        self.go_on = threading.Event()

    def hold(self, key: StepKey) -> Outcome:
        self.go_on.wait(20)
        return super().hold(key)


def test_stuck_thread_is_not_well_and_one_that_was_stopped_is() -> None:
    freezer = Stuck()
    freezer.adopt(freezer.look())
    gate = Gate(freezer, Lease(None))
    gate.lease.set_until(2**62)
    thread = SwitchThread(gate, lambda: None)
    late_ns = time.monotonic_ns() + 2 * OVERDUE_NS
    thread.prepare(Prepared(1, 1, late_ns, (A,), ()))
    assert thread.is_well(late_ns + 2 * OVERDUE_NS)  # the whole process stood still
    thread.prepare(Prepared(1, 1, 1, (A,), ()))
    until(lambda: thread.prepared() is None, what="the beginning of the switch")
    thread.prepare(Prepared(2, 1, 2, (), (A,)))
    assert thread.is_well(2 * OVERDUE_NS)
    assert not thread.is_well(3 * OVERDUE_NS)
    freezer.go_on.set()
    until(lambda: thread.prepared() is None, what="the end of the switch")
    assert thread.is_well(4 * OVERDUE_NS)
    thread.stop()


class Unwilling(RecordingFreezer):
    """Whose thaws fail."""

    def release(self, key: StepKey) -> Outcome:
        return Outcome(key, Did.FAILED, "not now")


def test_failing_thaw_is_tried_again_after_a_pause() -> None:
    freezer = Unwilling([A])
    freezer.adopt(freezer.look())
    now_ns = 1_000
    gate = Gate(freezer, Lease(None), lambda: now_ns)
    gate.lease.set_until(2_000)
    switch = Switch(gate, lambda: now_ns)
    gate.apply((A,), ())
    now_ns = 2_000
    assert switch.due_ns() == 2_000
    switch.fire()
    assert set(gate.held) == {A}
    assert switch.due_ns() == 2_000 + RETRY_NS
