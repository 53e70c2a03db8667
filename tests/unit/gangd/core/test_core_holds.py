"""Gangs that yield: no launch grace, and no slices among those whose cores the kernel shares as well."""

from __future__ import annotations

from gangd.core.scheduler_events import HoldMode, Publish
from gangd.core.states import GangState
from tests.fixtures.core_bench import Bench, only


def test_jobs_of_one_core_that_yield_take_no_turns_among_themselves() -> None:
    bench = Bench(nodes=1)
    for number in (1, 2, 3):
        bench.job(number, {"n0": (0,)}, hold=HoldMode.YIELD)
    bench.ticks(2)
    assert [bench.state(number) for number in (1, 2, 3)] == [GangState.BUSY] * 3
    assert bench.owners(4, 6) == [{1, 2, 3}] * 6


def test_jobs_of_one_core_that_are_frozen_take_turns() -> None:
    bench = Bench(nodes=1)
    bench.job(1, {"n0": (0,)}, hold=HoldMode.FREEZE)
    bench.job(2, {"n0": (0,)}, hold=HoldMode.YIELD)
    bench.tick()
    assert bench.owners(2, 4) == [{1}, {2}, {1}, {2}]


def test_a_job_of_several_cores_makes_its_neighbours_take_turns_and_no_others() -> None:
    bench = Bench(nodes=2, cores=2)
    for number, node, core in ((1, "n0", 0), (2, "n0", 0), (3, "n0", 1), (4, "n0", 1), (5, "n1", 1)):
        bench.job(number, {node: (core,)}, hold=HoldMode.YIELD)
    bench.tick()
    bench.job(6, {"n0": (0,), "n1": (0,)}, hold=HoldMode.YIELD)
    bench.ticks(3)
    for owners in bench.owners(8, 12):
        assert {3, 4, 5} <= owners
        assert len(owners & {1, 2, 6}) == 1
    del bench.jobs[6]
    bench.ticks(3)
    assert bench.owners(12, 2) == [{1, 2, 3, 4, 5}] * 2


def test_different_weights_are_kept_by_slices() -> None:
    bench = Bench(nodes=1)
    bench.job(1, {"n0": (0,)}, hold=HoldMode.YIELD, weight=3.0)
    bench.job(2, {"n0": (0,)}, hold=HoldMode.YIELD)
    bench.ticks(20)
    slices = bench.owners(22, 40)
    assert sum(1 in owners for owners in slices) == 30
    assert sum(2 in owners for owners in slices) == 10


def test_a_job_that_yields_is_ruled_from_its_first_slice_on() -> None:
    bench = Bench(nodes=2, grace_ns=60_000_000_000)
    bench.job(1, hold=HoldMode.YIELD)
    bench.job(2, hold=HoldMode.YIELD)
    [publish] = only(bench.tick(), Publish)
    [track] = publish.tracks
    assert [member.hold for member in track.members] == [HoldMode.YIELD] * 2
    assert bench.owners(2, 2) == [{1}, {2}]


def test_components_yield_only_if_all_do() -> None:
    bench = Bench(nodes=2)
    bench.job(1, {"n0": (0,)}, gang=1, hold=HoldMode.YIELD)
    bench.job(2, {"n1": (0,)}, gang=1, hold=HoldMode.FREEZE)
    bench.tick()
    assert bench.scheduler.gangs[1].hold is HoldMode.FREEZE


def test_a_changed_hold_is_published_anew() -> None:
    bench = Bench(nodes=2)
    bench.job(1, hold=HoldMode.YIELD)
    bench.job(2, hold=HoldMode.YIELD)
    bench.ticks(4)
    bench.job(2, hold=HoldMode.FREEZE)
    [publish] = only(bench.tick(), Publish)
    [track] = publish.tracks
    assert [member.hold for member in track.members] == [HoldMode.YIELD, HoldMode.FREEZE]
