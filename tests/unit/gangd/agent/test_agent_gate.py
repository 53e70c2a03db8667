from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangd.agent.hold_controller import HoldController, Lease
from gangd.agent.planned_switches import PreparedSwitch
from gangd.agent.switch_thread import Switch
from gangd.freezer.freezer_choice import RecordingFreezer
from gangd.freezer.holder import Did, StepKey
from gangd.guardian.statefile import StateFile, Word
from gangd.hold.deprioritizer import BothWays
from tests.fixtures.recording_yielder import RecordingYielder

A, B = StepKey(1, "0"), StepKey(2, "0")


class Clock:
    """A clock that says what it is told, or walks through a script."""

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
    applied = gate.apply((B,), ())
    assert applied.refused
    assert freezer.frozen == set()
    assert gate.held == {}


def test_lease_that_ends_between_check_and_write_undoes_the_write(
    gate: HoldController, freezer: RecordingFreezer, clock: Clock
) -> None:
    clock.script = [9_999, 9_999, 50_000]
    applied = gate.apply((A,), ())
    assert applied.refused
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
        self.strangers: set[StepKey] = set()

    def written(self) -> set[StepKey]:
        keys = self.strangers | {key for _, key in self.freezer.writes[self.seen :]}
        self.seen, self.strangers = len(self.freezer.writes), set()
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
    written.strangers = {A}
    gate.apply((), (A, B))
    assert freezer.frozen == {A}
    assert set(gate.held) == {A}
    assert gate.strange() == {A}
    gate.apply((), (A,))
    assert freezer.frozen == {A}  # it is known who wrote, but not yet what
    gate.settle(A)
    gate.apply((), (A,))
    assert freezer.frozen == set()


def test_what_a_stranger_wrote_is_not_frozen_before_it_was_looked_at(
    gate: HoldController, freezer: RecordingFreezer, written: Written
) -> None:
    """Slurm thaws a step to end it. Frozen on top of that, it would look frozen by Slurm, and be left so."""
    written.strangers = {A}
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
    watch.strangers = {A}
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
    written.strangers = {A}
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
