from __future__ import annotations

import select
import time
from collections.abc import Iterator

import pytest

from gangd.agent.gate import Gate, Lease
from gangd.agent.switch import Prepared, Switched, SwitchThread
from gangd.freezer.model import Outcome, StepKey
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
