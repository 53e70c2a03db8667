"""The switch thread's contract, for both of its makers: Python alone, and Python and native code."""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gangd.agent.hold_controller import HoldController, Lease
from gangd.agent.native import ABI, load
from gangd.agent.planned_switches import PreparedSwitch
from gangd.agent.switch_thread import OVERDUE_NS, RETRY_NS, Switch, SwitchThread
from gangd.freezer.freezer_choice import RecordingFreezer
from gangd.freezer.holder import Did, HoldOutcome, StepKey
from gangd.guardian.statefile import Word
from hatch_build import compile_switch
from tests.fixtures.gang_switch import JOBS, KEYS, MS, A, B, C, Stage, soon_ns
from tests.fixtures.looks import until
from tests.fixtures.tier import choose


def is_readable(fd: int, within_s: float) -> bool:
    """Whether a descriptor, which may be above 1,023, can be read in time."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(1000 * within_s))


@pytest.fixture(params=["freeze", "both"])
def yielding(request: pytest.FixtureRequest) -> frozenset[int]:
    """Return the jobs that yield; where all do, see ``test_agent_switch_yield``."""
    return frozenset({2}) if request.param == "both" else frozenset()


@pytest.fixture
def stage(maker: ctypes.CDLL | None, yielding: frozenset[int], tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, maker, yielding)
    yield stage
    stage.close()


@pytest.fixture
def freezing(maker: ctypes.CDLL | None, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, maker)
    yield stage
    stage.close()


def test_never_acts_before_the_instant(stage: Stage) -> None:
    for number in range(20):
        stage.switch.prepare(PreparedSwitch(number, 1, soon_ns(), (A,), (B,)))
        (switched,) = stage.made()
        assert switched.prepared.number == number
        assert switched.late_ns >= 0
    assert (stage.held(), stage.recorded()) == ({A}, {1})


def test_whole_queue_is_made_in_order_without_anybody(stage: Stage) -> None:
    first_ns = soon_ns(20 * MS)
    steps = [(A, B), (B, A)]
    queue = [
        PreparedSwitch(
            number, 1, first_ns + number * 15 * MS, (steps[number % 2][0],), (steps[number % 2][1],)
        )
        for number in range(8)
    ]
    stage.switch.prepare(*queue)
    made = stage.made(8)
    assert [each.prepared for each in made] == queue
    assert [set(each.held) for each in made] == [{1}, {2}] * 4
    assert [each.turn for each in made] == list(range(made[0].turn, made[0].turn + 8))
    for each in made:
        applied = each.applied
        assert each.prepared.instant_ns <= applied.begin_ns <= applied.frozen_ns <= applied.end_ns
        assert not applied.refused
    assert (stage.held(), stage.recorded(), stage.switch.queue()) == ({B}, {2}, ())


def test_instant_that_has_passed_is_acted_on_at_once(stage: Stage) -> None:
    stage.switch.prepare(PreparedSwitch(1, 1, 1, (A,), ()))
    (switched,) = stage.made()
    assert switched.held == {1}


def test_replaced_switch_is_not_made(stage: Stage) -> None:
    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(10**12), (A,), ()))
    stage.switch.prepare(PreparedSwitch(2, 1, soon_ns(0), (B,), ()))
    (switched,) = stage.made()
    assert switched.prepared.number == 2
    assert stage.held() == {B}


def test_switch_that_was_made_is_not_made_again(stage: Stage) -> None:
    prepared = PreparedSwitch(7, 1, soon_ns(), (A,), ())
    stage.switch.prepare(prepared)
    stage.made()
    stage.gate.apply((), (A,))
    following = PreparedSwitch(8, 1, soon_ns(20 * MS), (B,), ())
    stage.switch.prepare(prepared, following)
    (switched,) = stage.made()
    assert switched.prepared is following
    assert stage.held() == {B}


def test_end_of_the_lease_thaws_without_the_loop(stage: Stage) -> None:
    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(0), (A,), ()))
    stage.made()
    stage.gate.lease.set_until(soon_ns(50 * MS))
    stage.switch.rearm()
    until(lambda: stage.held() == set(), what="thaw at the end of the lease")
    assert is_readable(stage.switch.alarm_fd, 10)
    until(lambda: stage.recorded() == set(), what="the end of what was recorded")
    assert stage.gate.held == {}


def test_without_a_lease_everything_is_thawed_instead(stage: Stage) -> None:
    stage.gate.apply((C,), ())
    stage.switch.prepare(
        PreparedSwitch(1, 1, soon_ns(60 * MS), (A,), ()), PreparedSwitch(2, 1, soon_ns(90 * MS), (B,), ())
    )
    stage.gate.lease.set_until(soon_ns(30 * MS))
    assert [each.applied.refused for each in stage.made(2)] == [True, True]
    assert stage.held() == set()
    assert stage.recorded() == set()


def test_operator_can_pause_freezing(stage: Stage) -> None:
    stage.state.set_word(Word.PAUSED_UNTIL_NS, soon_ns(10**12))
    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(), (A,), ()))
    (switched,) = stage.made()
    assert switched.applied.refused
    assert stage.held() == set()


def test_job_that_is_barred_after_it_was_prepared_is_not_frozen(stage: Stage) -> None:
    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(30 * MS), (A, B), ()))
    stage.gate.bar(frozenset({1}))
    (switched,) = stage.made()
    assert switched.held == {2}
    assert stage.held() == {B}


def test_what_a_stranger_wrote_is_not_thawed(freezing: Stage) -> None:
    stage = freezing
    stage.gate.apply((A, B), ())
    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(30 * MS), (), (A, B)))
    fd = os.open(stage.files[A], os.O_WRONLY)
    os.write(fd, b"FROZEN")
    os.close(fd)
    stage.made()
    assert (stage.held(), stage.gate.strange(), set(stage.gate.held)) == ({A}, {A}, {A})


def test_own_writes_are_not_those_of_others(stage: Stage) -> None:
    stage.switch.prepare(
        PreparedSwitch(1, 1, soon_ns(), (A, B), ()), PreparedSwitch(2, 1, soon_ns(20 * MS), (), (A,))
    )
    stage.made(2)
    assert stage.gate.strange() == set()


@pytest.mark.parametrize("which", [A, B])
def test_write_that_fails_is_reported_and_the_rest_is_done(stage: Stage, which: StepKey) -> None:
    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(40 * MS), (A, B), ()))
    readable = os.open(stage.files[which], os.O_RDONLY)
    os.dup2(readable, stage.control_fd(which))
    os.close(readable)
    (switched,) = stage.made()
    failed = [outcome for outcome in switched.applied.outcomes if outcome.did is Did.FAILED]
    assert [outcome.key for outcome in failed] == [which]
    assert stage.held() == {A, B} - {which}
    assert stage.recorded() == {key.job for key in {A, B} - {which}}
    assert stage.gate.strange() == set()


def test_part_of_a_switch_that_was_written_is_held_by_us(
    freezing: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the thread goes on with the rest: else what it froze looks like an external change."""
    stage, goes_on, fire = freezing, threading.Event(), freezing.switch.fire

    def fire_late() -> None:
        assert goes_on.wait(60)
        fire()

    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(40 * MS), (A, B), ()))
    readable = os.open(stage.files[B], os.O_RDONLY)
    os.dup2(readable, stage.control_fd(B))
    os.close(readable)
    if stage.native is not None:
        monkeypatch.setattr(stage.switch, "fire", fire_late)
        until(lambda: stage.frozen() == {A}, what="the first write of two")
        assert stage.gate.frozen_since(A) is not None
        assert stage.gate.strange() == set()
        goes_on.set()
    stage.made()
    assert stage.held() == {A}
    assert stage.gate.strange() == set()


def test_what_is_done_meanwhile_counts(stage: Stage) -> None:
    """As where a held job is found to be dying between two switches that were prepared together."""
    stage.switch.prepare(
        PreparedSwitch(1, 1, soon_ns(), (A, B), ()), PreparedSwitch(2, 1, soon_ns(120 * MS), (C,), (A, B))
    )
    stage.made()
    turn = stage.gate.turn
    stage.gate.apply((), (A,), turn=turn)
    assert (set(stage.gate.held), stage.held()) == ({B}, {B})
    (switched,) = stage.made()
    assert stage.held() == {C}
    assert switched.held == {3}
    assert stage.gate.turn == turn + 1
    stage.gate.apply((A,), (), turn=turn)  # what was decided for a turn that is over is not done
    assert stage.held() == {C}


def test_step_that_is_gone_is_forgotten(freezing: Stage) -> None:
    stage = freezing
    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(), (A, B), ()))
    stage.made()
    shutil.rmtree(stage.files.pop(A).parent)
    stage.gate.apply((), (A,))
    stage.gate.adopt(stage.freezer.look())
    stage.switch.prepare(PreparedSwitch(2, 1, soon_ns(), (C, A), (B,)))
    stage.made()
    assert stage.held() == {C}


def test_failure_in_the_thread_is_passed_to_the_loop(stage: Stage) -> None:
    def fail(*_: object, **__: object) -> HoldOutcome:
        raise RuntimeError("broken")

    stage.holder.hold = fail  # type: ignore[method-assign]
    stage.holder.plan = lambda *_, **__: None  # type: ignore[method-assign]
    stage.switch.prepare(PreparedSwitch(1, 1, 1, (A,), ()))
    assert is_readable(stage.switch.alarm_fd, 10)
    assert isinstance(stage.switch.failure, RuntimeError)


@pytest.mark.parametrize("seed", range(choose(1, 2, 30)))
def test_whatever_comes_between_what_is_frozen_is_held_and_recorded(stage: Stage, seed: int) -> None:
    dice = Random(seed)
    number, end_ns = 0, soon_ns(250 * MS)
    while time.monotonic_ns() < end_ns:
        what = dice.randrange(8)
        if what == 0:
            queue = []
            at_ns = soon_ns(0)
            for _ in range(dice.randrange(1, 6)):
                number += 1
                at_ns += dice.randrange(11, 14) * MS
                held = tuple(key for key in KEYS if dice.random() < 0.5)
                queue.append(PreparedSwitch(number, 1, at_ns, held, tuple(set(KEYS) - set(held))))
            stage.switch.prepare(*queue)
        elif what == 1:
            stage.gate.apply((dice.choice(KEYS),), (dice.choice(KEYS),))
        elif what == 2:
            stage.gate.adopt(stage.freezer.look())
        elif what == 3:
            stage.gate.bar(frozenset(dice.sample((1, 2, 3), dice.randrange(2))))
        elif what == 4:
            stage.gate.thaw_all()
        elif what == 5:
            stage.switch.collect()
        elif what == 6:
            stage.let_yield(frozenset(job for job in JOBS if dice.random() < 0.5))
        else:
            reach = frozenset(job for job in JOBS if dice.random() < 0.8)
            stage.gather(reach)
            stage.gate.apply((), [key for key in KEYS if key.job not in reach])
        with stage.gate.alone(changes=False):
            found, recorded = stage.held(), stage.recorded()
            assert {key.job for key in found} == recorded
            assert found == set(stage.gate._held)
        assert stage.gate.strange() == set()
        time.sleep(dice.random() * 0.01)
    assert stage.switch.failure is None
    stage.switch.prepare()
    stage.gate.thaw_all()
    assert stage.held() == set()
    assert stage.recorded() == set()
    assert stage.gate.held == {}


def test_native_code_makes_what_is_a_matter_of_course_and_leaves_the_rest(
    library: Path, yielding: frozenset[int], tmp_path: Path
) -> None:
    """Python's own way to hold is broken: only native code can have done it."""
    stage = Stage(tmp_path, load(library), yielding)
    try:
        stage.switch.prepare(
            PreparedSwitch(1, 1, soon_ns(), (A,), ()), PreparedSwitch(2, 1, soon_ns(40 * MS), (B,), (A,))
        )
        stage.holder.hold = stage.holder.release = None  # type: ignore[method-assign, assignment]
        stage.made(2)
        assert stage.held() == {B}
        assert stage.switch.failure is None
        del stage.holder.hold, stage.holder.release
        stage.gate.thaw_all()
        assert stage.held() == set()
    finally:
        stage.close()


def test_library_of_another_version_or_none_is_not_used(tmp_path: Path) -> None:
    assert load(tmp_path / "none.so") is None
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    (root := tmp_path / "gangd" / "agent").mkdir(parents=True)
    (root / "switch.c").write_text(f"int gs_abi(void) {{ return {ABI + 1}; }}\n")
    assert compile_switch(tmp_path, tmp_path / "other.so") is None
    assert load(tmp_path / "other.so") is None
    (root / "switch.c").write_text("this is no C")
    assert "failed" in (compile_switch(tmp_path, tmp_path / "third.so") or "")


def test_thread_that_cannot_begin_is_reported() -> None:
    def refused() -> None:
        raise OSError("no priority")

    thread = SwitchThread(HoldController(RecordingFreezer(), Lease(None)), refused)
    assert is_readable(thread.alarm_fd, 5)
    assert isinstance(thread.failure, OSError)
    until(lambda: not thread.is_well(time.monotonic_ns()), what="the end of the thread")
    thread.stop()


def test_stuck_thread_is_not_well_and_one_that_was_stopped_is() -> None:
    go_on = threading.Event()
    thread = SwitchThread(HoldController(RecordingFreezer(), Lease(None)), lambda: go_on.wait(20))
    thread.prepare(PreparedSwitch(1, 1, 1, (A,), ()))
    assert thread.is_well(2 * OVERDUE_NS)  # late, as after a while in which the whole process stood still
    assert not thread.is_well(3 * OVERDUE_NS)
    go_on.set()
    until(lambda: thread.prepared() is None, what="the switch")
    assert thread.is_well(4 * OVERDUE_NS)
    thread.stop()


class Unwilling(RecordingFreezer):
    """Whose thaws fail."""

    def release(self, key: StepKey) -> HoldOutcome:
        return HoldOutcome(key, Did.FAILED, "not now")


def test_failing_thaw_is_tried_again_after_a_pause() -> None:
    freezer = Unwilling([A])
    freezer.adopt(freezer.look())
    now_ns = 1_000
    gate = HoldController(freezer, Lease(None), lambda: now_ns)
    gate.lease.set_until(2_000)
    switch = Switch(gate, lambda: now_ns)
    gate.apply((A,), ())
    now_ns = 2_000
    assert switch.due_ns() == 2_000
    switch.fire()
    assert set(gate.held) == {A}
    assert switch.due_ns() == 2_000 + RETRY_NS
