from __future__ import annotations

import errno
import os

import pytest

from gangd.freezer.holder import Did, StepKey
from gangd.hold.cpu_group import CpuGroup, Turner
from gangd.hold.cpu_priority import IDLE1, IDLE2, SHARES1, WEIGHT2, CpuWeightControl
from tests.fixtures.no_ledger import NoLedger

KEY = StepKey(1, "0")
KNOBS = pytest.mark.parametrize("knob", [IDLE1, SHARES1, IDLE2, WEIGHT2])


class Record(NoLedger):
    """Remembers one slot."""

    marked = False

    def hold(self, slot: int) -> None:
        del slot
        self.marked = True

    def release(self, slot: int) -> None:
        del slot
        self.marked = False


class World:
    """A group whose writes are listed; those that ``failing`` has the place of fail."""

    def __init__(self, knob: CpuWeightControl, weight: int) -> None:
        self.written: list[tuple[str, bytes]] = []
        self.failing: dict[int, int] = {}
        self.ledger = Record()
        self.names = [*dict.fromkeys((knob.file, knob.weight_file))]
        self.turner = Turner(knob, self.ledger, self.write)
        fds = {name: fd for fd, name in enumerate(self.names)}
        self.group = CpuGroup(path="job_1", fds=fds, weight=weight, slot=1)

    def write(self, fd: int, data: bytes, at: int) -> int:
        assert at == 0
        number = self.failing.pop(len(self.written), None)
        if number is not None:
            raise OSError(number, os.strerror(number))
        self.written.append((self.names[fd], data))
        return len(data)


@KNOBS
@pytest.mark.parametrize("weight", [None, 250])
def test_what_is_planned_is_what_would_be_written(knob: CpuWeightControl, weight: int | None) -> None:
    for low in (True, False):
        world = World(knob, weight or knob.usual)
        if not low:
            world.turner.turn(world.group, low=True)
            world.written.clear()
        ours: dict[int, bool] = {}
        planned = world.turner.plan(world.group, KEY, ours, holds=low)
        assert planned is not None
        assert [write.completes for write in planned] == [False] * (len(planned) - 1) + [True]
        assert world.turner.plan(world.group, KEY, ours, holds=low) == []  # another step of the job
        assert ours == {1: low}
        assert world.turner.turn(world.group, low=low).did is Did.WROTE
        assert [(world.names[write.fd], write.data) for write in planned] == world.written


@KNOBS
def test_planned_writes_that_were_made_are_as_if_python_had_made_them(knob: CpuWeightControl) -> None:
    world = World(knob, 250)
    for low in (True, False):
        for write in world.turner.plan(world.group, KEY, {}, holds=low) or ():
            write.target.note(write)
        assert (world.group.low, world.group.torn) == (low, False)
        assert world.turner.turn(world.group, low=low).did is Did.NOTHING
    assert not world.written


@pytest.mark.parametrize("by_native_code", [True, False])
@pytest.mark.parametrize("following", [True, False])
def test_release_that_stopped_half_way_is_made_anew(by_native_code: bool, following: bool) -> None:
    world = World(IDLE1, 2048)
    world.turner.turn(world.group, low=True)
    if by_native_code:
        planned = world.turner.plan(world.group, KEY, {}, holds=False)
        assert planned is not None
        planned[0].target.note(planned[0])
    else:
        world.failing = {2: errno.EIO}
        assert world.turner.turn(world.group, low=False).did is Did.FAILED
    assert world.ledger.marked
    assert world.turner.plan(world.group, KEY, {}, holds=following) is None
    world.written.clear()
    assert world.turner.turn(world.group, low=following).did is Did.WROTE
    assert world.written == (
        [("cpu.idle", b"1")] if following else [("cpu.idle", b"0"), ("cpu.shares", b"2048")]
    )
    assert world.ledger.marked is following
    assert world.turner.turn(world.group, low=following).did is Did.NOTHING


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODEV])
def test_hold_that_fails_is_taken_from_the_record_unless_it_was_low(number: int) -> None:
    world = World(IDLE1, 2048)
    world.failing = {0: number}
    expected = Did.GONE if number == errno.ENODEV else Did.FAILED
    assert world.turner.turn(world.group, low=True).did is expected
    assert not world.ledger.marked
    world.turner.turn(world.group, low=True)
    world.failing = {1: errno.EIO}
    world.turner.turn(world.group, low=False)  # which may have been its first write
    world.failing = {1: number}
    assert world.turner.turn(world.group, low=True).did is expected
    assert world.ledger.marked


def test_without_a_record_nothing_is_planned_or_held() -> None:
    world = World(IDLE2, 100)
    world.group.slot = None
    assert world.turner.plan(world.group, KEY, {}, holds=True) is None
    assert world.turner.turn(world.group, low=True).did is Did.FAILED
    assert not world.written
