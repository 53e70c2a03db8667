"""Switches of jobs that yield: writes, ledger and accounts, made by Python alone and with native code."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gangd.agent.native import MOST_ACCOUNTS, load
from gangd.agent.planned_switches import PreparedSwitch
from gangd.freezer.holder import CpuTimeFile, StepKey
from gangd.freezer.tree import own_group
from gangd.hold.deprioritizer import BothWays
from tests.fixtures.gang_switch import JOBS, KEYS, MS, A, B, C, Spy, Stage, soon_ns
from tests.fixtures.recording_yielder import RecordingYielder
from tests.fixtures.tier import choose

BATCH, EXTERN = StepKey(1, "batch"), StepKey(1, "extern")
WIDE = 2048


@pytest.fixture
def stage(maker: ctypes.CDLL | None, tmp_path: Path) -> Iterator[Stage]:
    """Return a stage on which all jobs yield."""
    stage = Stage(tmp_path, maker, JOBS)
    yield stage
    stage.close()


@pytest.fixture
def native(library: Path, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, load(library), JOBS)
    yield stage
    stage.close()


@pytest.fixture
def spy(spied: Path) -> Spy:
    return Spy(spied)


@pytest.fixture
def scene(spy: Spy, tmp_path: Path) -> Iterator[Stage]:
    """Return a stage on which each write of native code goes to ``spy``; job 1 has two cores."""
    stage = Stage(tmp_path, spy.library, JOBS)
    stage.groups._groups[1].weight = WIDE

    def check() -> None:
        assert {key.job for key in stage.held()} <= stage.recorded()

    spy.on_write = check
    yield stage
    stage.close()
    assert not spy.failures


def shares(stage: Stage, job: int) -> int:
    return int(stage.cpu.read(own_group("a", job), "cpu.shares"))


def began(stage: Stage, *keys: StepKey) -> None:
    for key in keys:
        stage.begin(key)
    stage.look()


def test_job_of_several_steps_is_one_write(scene: Stage, spy: Spy) -> None:
    began(scene, BATCH, EXTERN)
    mine = (BATCH, A, EXTERN)
    scene.switch.prepare(
        PreparedSwitch(1, 1, soon_ns(), mine, (B,)),
        PreparedSwitch(2, 1, soon_ns(30 * MS), (B,), mine),
        PreparedSwitch(3, 1, soon_ns(60 * MS), mine, (B,)),
    )
    assert [each.held for each in scene.made(3)] == [{1}, {2}, {1}]
    low, normal, weight = ("cpu.idle", b"1"), ("cpu.idle", b"0"), ("cpu.shares", b"%d" % WIDE)
    assert spy.writes == [low, low, normal, weight, low, normal]
    assert set(scene.gate.held) == {*mine}
    assert scene.low() == scene.recorded() == {1}


def test_release_of_two_writes_stays_on_record_until_both_are_made(scene: Stage, spy: Spy) -> None:
    scene.gate.apply((A,), ())
    recorded: list[set[int]] = []
    check = spy.on_write

    def note() -> None:
        check()
        recorded.append(scene.recorded())

    spy.on_write = note
    scene.switch.prepare(PreparedSwitch(1, 1, soon_ns(), (), (A,)))
    scene.made()
    assert recorded == [{1}] * 4
    assert scene.recorded() == set()
    assert shares(scene, 1) == WIDE


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_write_that_fails_leaves_the_whole_switch_to_python(scene: Stage, spy: Spy, fails_at: int) -> None:
    for key, used_ns in {A: "7", B: "8"}.items():
        scene.account(key).parent.mkdir(parents=True)
        scene.account(key).write_text(used_ns)
    scene.look()
    scene.gate.apply((A,), ())
    spy.fails_at = fails_at
    scene.switch.prepare(PreparedSwitch(1, 1, soon_ns(), (B,), (A,)))
    (switched,) = scene.made()
    assert len(spy.writes) == fails_at
    assert switched.held == {2}
    assert not [each for each in switched.applied.outcomes if each.text is not None]
    assert switched.applied.used_ns == {1: 7, 2: 8}
    assert scene.low() == scene.recorded() == {2}
    assert shares(scene, 1) == WIDE


@pytest.mark.parametrize("seed", range(choose(2, 4, 40)))
def test_at_every_write_what_is_held_is_on_record(scene: Stage, spy: Spy, seed: int) -> None:
    """What native code is doing when the agent dies, its guardian finds in the ledger."""
    dice = Random(seed)
    began(scene, BATCH)
    keys = (*KEYS, BATCH)
    number = 0
    for _ in range(6):
        queue, at_ns = [], soon_ns(0)
        for _ in range(5):
            number += 1
            at_ns += 3 * MS
            held = tuple(key for key in keys if dice.random() < 0.5 or key == BATCH)
            queue.append(PreparedSwitch(number, 1, at_ns, held, tuple(set(keys) - set(held))))
        spy.fails_at = len(spy.writes) + dice.randrange(20)
        scene.let_yield(frozenset(job for job in JOBS if dice.random() < 0.8))
        scene.gate.apply(tuple(scene.gate.held), ())
        scene.switch.prepare(*queue)
        scene.made(dice.randrange(1, 4))
    assert spy.writes
    scene.switch.prepare()
    scene.gate.thaw_all()
    assert not scene.held()
    assert not scene.recorded()


def test_what_jobs_had_used_by_the_switch_is_reported(stage: Stage) -> None:
    for key, used_ns in {A: "700", B: "9000000000123"}.items():
        stage.account(key).parent.mkdir(parents=True)
        stage.account(key).write_text(used_ns)
    stage.begin(BATCH)
    stage.look()
    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(30 * MS), (A, BATCH), ()))
    stage.account(A).write_text("701\n")
    (first,) = stage.made()
    assert first.applied.used_ns == {1: 701}
    stage.switch.prepare(PreparedSwitch(2, 1, soon_ns(), (B, C), (A, BATCH)))
    (second,) = stage.made()
    assert second.applied.used_ns == {1: 701, 2: 9_000_000_000_123}  # no cgroup accounts for job 3


def test_account_that_cannot_be_read_is_none_until_the_next_look(stage: Stage) -> None:
    for key in (A, B):
        stage.account(key).parent.mkdir(parents=True)
        stage.account(key).write_text("5")
    stage.look()
    stage.switch.prepare(
        PreparedSwitch(1, 1, soon_ns(30 * MS), (A, B), ()), PreparedSwitch(2, 1, soon_ns(60 * MS), (), (A, B))
    )
    stage.account(A).write_text("")
    first, second = stage.made(2)
    assert first.applied.used_ns == second.applied.used_ns == {2: 5}
    assert stage.gate.cpu_ns(A.job) is None
    stage.account(A).unlink()
    stage.account(A).write_text("6")  # the step of the same name is another
    stage.look()
    stage.switch.prepare(PreparedSwitch(3, 1, soon_ns(), (A, B), ()))
    (third,) = stage.made()
    assert third.applied.used_ns == {1: 6, 2: 5}


@pytest.mark.parametrize("yields", [True, False])
def test_more_accounts_than_native_code_reads(stage: Stage, yields: bool) -> None:
    """Python reads those of jobs that yield; of jobs that are frozen the first ones are enough."""
    many = tuple(StepKey(job, "0") for job in range(101, 101 + MOST_ACCOUNTS + 1))
    jobs = frozenset(key.job for key in many)
    for key in many:
        stage.cpu.make(own_group("a", key.job))
        stage.begin(key, "2")
    stage.look()
    if yields:
        stage.gather(JOBS | jobs)
        stage.let_yield(JOBS | jobs)
    stage.switch.prepare(
        PreparedSwitch(1, 1, soon_ns(), many, ()), PreparedSwitch(2, 1, soon_ns(30 * MS), (), many[:3])
    )
    first, second = stage.made(2)
    by_native = stage.native is not None and not yields
    read = many[:MOST_ACCOUNTS] if by_native else many
    assert first.applied.used_ns == {key.job: 2 for key in read}
    assert second.applied.used_ns == {key.job: 2 for key in many[:3]}
    if stage.native is not None:
        assert stage.native.made == (2 if by_native else 0)  # nor is the second, which comes after it


@pytest.mark.parametrize(
    ("text", "used_ns"),
    [
        ("usage_usec 12\nuser_usec 7\nsystem_usec 5\n", 12_000),
        ("user_usec 7\nusage_usec 3\n", 3000),
        ("usage_usec 9223372036854775\n", 9_223_372_036_854_775_000),
        ("usage_usec 4x\n", None),
        ("usage_usec \n", None),
        ("usage_usec -4\n", None),
        ("user_usec 7\n", None),
        ("", None),
    ],
)
def test_account_in_lines(native: Stage, tmp_path: Path, text: str, used_ns: int | None) -> None:
    (tmp_path / "cpu.stat").write_text(text)
    fd = os.open(tmp_path / "cpu.stat", os.O_RDONLY)
    native.holder.account = lambda job: CpuTimeFile(fd, in_lines=True)
    native.switch.prepare(PreparedSwitch(1, 1, soon_ns(), (A,), ()))
    (switched,) = native.made()
    assert switched.applied.used_ns == ({} if used_ns is None else {1: used_ns})
    assert native.native is not None
    assert native.native.made == 1
    os.close(fd)


def test_other_way_for_a_job_that_is_held(stage: Stage) -> None:
    stage.switch.prepare(
        PreparedSwitch(1, 1, soon_ns(), (A,), ()), PreparedSwitch(2, 1, soon_ns(10**12), (B,), (A,))
    )
    stage.made()
    stage.let_yield(frozenset({2, 3}))
    stage.gate.apply((A,), ())
    assert (stage.frozen(), stage.low()) == ({A}, set())
    stage.let_yield(JOBS)
    stage.gate.apply((A,), ())
    assert (stage.frozen(), stage.low()) == (set(), {1})
    stage.switch.prepare(PreparedSwitch(3, 1, soon_ns(), (B,), (A,)))
    stage.made()
    assert stage.low() == stage.recorded() == {2}
    stage.gate.thaw_all()
    assert stage.low() == stage.recorded() == set()


def test_what_was_planned_for_the_other_way_is_dropped(native: Stage) -> None:
    native.switch.prepare(PreparedSwitch(1, 1, soon_ns(10**12), (A,), ()))
    native.gate.let_yield(JOBS)
    assert native.switch.is_planned
    native.gate.let_yield(frozenset({2, 3}))
    assert not native.switch.is_planned


@pytest.mark.parametrize("why", ["the job left", "its group was removed"])
def test_job_that_leaves_is_not_written_to_any_more(native: Stage, tmp_path: Path, why: str) -> None:
    """The number of its file may be another file's by the instant."""
    native.switch.prepare(PreparedSwitch(1, 1, soon_ns(50 * MS), (A, B), ()))
    fd = native.control_fd(B)
    if why == "the job left":
        native.gather(JOBS - {2})
    else:
        folder = os.open(tmp_path, os.O_RDONLY)
        os.dup2(folder, native.groups._groups[2].procs_fd)  # it can be read no more
        os.close(folder)
        native.gather(JOBS)
    (other := tmp_path / "other").write_text("0")
    opened = {os.open(other, os.O_RDWR), fd}
    os.dup2(min(opened - {fd}, default=fd), fd)
    (switched,) = native.made()
    assert other.read_text() == "0"
    assert switched.held == native.low() == native.recorded() == {1}
    for each in opened:
        os.close(each)


def test_weight_that_changes_counts(stage: Stage) -> None:
    """Of this process, which has two threads at least, by the time of its release."""
    stage.gate.apply((A,), ())
    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(50 * MS), (), (A,)))
    stage.holder.yielder.gather({1: lambda: (os.getpid(),), 2: tuple, 3: tuple}, stage.gate.alone, {1: 2})
    stage.made()
    assert shares(stage, 1) >= 2 * 1024
    assert stage.low() == stage.recorded() == set()


def test_what_is_no_list_of_writes_is_not_planned(stage: Stage) -> None:
    both = BothWays(stage.freezer, RecordingYielder())
    both.yielding = frozenset({1})
    assert both.plan(A, {}, holds=True) is None
    assert both.plan(B, {}, holds=True)


def test_group_that_is_gone_is_neither_held_nor_a_failure(stage: Stage) -> None:
    stage.gather(frozenset({2, 3}))
    stage.switch.prepare(PreparedSwitch(1, 1, soon_ns(), (A, B), ()))
    (switched,) = stage.made()
    assert switched.held == {2}
    assert set(stage.gate.held) == {B}
    assert not [each for each in switched.applied.outcomes if each.text is not None]
