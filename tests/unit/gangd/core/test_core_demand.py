"""How soon a gang is believed to be idle or busy, and what keeps it from flapping."""

from __future__ import annotations

from gangd.core.demand import Demand, Level
from gangd.core.gang import LostTime
from gangd.core.gang_settings import CoreSettings
from gangd.core.scheduler_events import CpuSample, HoldMode, NodeReport, Publish
from gangd.core.states import GangState
from tests.fixtures.core_bench import Bench, only

SETTINGS = CoreSettings()


def feed(demand: Demand, first: int, shares: list[float], *, tasks: int = 1, places: int = 1) -> int:
    """Take in one sample a slice of each place; returns the slice after the last."""
    for number, share in enumerate(shares, first):
        for _ in range(places):
            demand.sample(number, share, tasks, places, SETTINGS)
    return first + len(shares)


def slices_to_rest(demand: Demand, first: int, **shape: int) -> int:
    """Count the idle slices until the gang is believed to be idle."""
    for count in range(1, 50):
        feed(demand, first + count - 1, [0.0], **shape)
        if demand.level is Level.IDLE:
            return count
    raise AssertionError("it never rests")


def test_one_process_rests_after_its_first_idle_slice() -> None:
    demand = Demand()
    after = feed(demand, 0, [0.9] * 40)
    assert demand.level is Level.BUSY
    assert slices_to_rest(demand, after) == 1


def test_a_process_that_comes_back_soon_again_and_again_is_left_busy_longer() -> None:
    demand = Demand()
    after = feed(demand, 0, [0.9] * 4)
    rests = []
    for _ in range(4):
        rests.append(slices_to_rest(demand, after))
        after = feed(demand, after + rests[-1], [0.9] * 3)
        assert demand.level is Level.BUSY
    assert rests == sorted(rests)
    assert (rests[0], rests[-1]) == (1, SETTINGS.idle_samples)


def test_bursts_with_long_pauses_between_are_no_flapping() -> None:
    demand = Demand()
    after = feed(demand, 0, [0.9] * 4)
    for _ in range(5):
        assert slices_to_rest(demand, after) == 1
        after = feed(demand, after + 1, [0.01] * 32)
        after = feed(demand, after, [0.9] * 4)


def test_ranks_that_block_in_turns_stay_busy() -> None:
    demand = Demand()
    for number in range(200):  # each of two ranks waits for the other every second slice
        for rank in range(2):
            demand.sample(number, 0.9 if number % 2 == rank else 0.0, 1, 2, SETTINGS)
        assert demand.level is Level.BUSY


def test_several_processes_that_pause_together_for_less_than_their_patience_stay_busy() -> None:
    demand = Demand()
    after = feed(demand, 0, [0.9] * 20, tasks=2, places=2)
    for _ in range(10):
        after = feed(demand, after, [0.0] * (SETTINGS.idle_samples_multi - 1), tasks=2, places=2)
        assert demand.level is Level.BUSY
        after = feed(demand, after, [0.9] * 10, tasks=2, places=2)


def test_what_was_seen_while_alone_counts_when_cores_begin_to_be_shared() -> None:
    bench = Bench(nodes=1)
    bench.job(1, {"n0": (0,)})
    bench.tick()
    report = NodeReport(bench.now_ns, "n0", alone=(CpuSample(1, 10_000, 0, 1_000_000, 1),))
    bench.tell(report)
    bench.tick()
    assert bench.state(1) is GangState.SOLO
    bench.job(2, {"n0": (0,)})
    bench.tick()
    assert bench.state(1) is GangState.IDLE
    assert bench.state(2) is GangState.BUSY
    assert bench.owners(bench.slice + 1, 4) == [{1, 2}] * 4


def test_alone_a_gang_is_idle_only_if_all_of_its_nodes_were() -> None:
    demand = Demand()
    levels = []
    for node, share in ((0, 0.0), (1, 0.0), (0, 0.9)):
        demand.alone((1, node), share, 1, 2, SETTINGS)
        levels.append(demand.level)
    assert levels == [Level.BUSY, Level.IDLE, Level.BUSY]


def test_a_late_report_from_when_it_was_alone_does_not_rule_a_gang_that_shares() -> None:
    bench = Bench(nodes=1)
    bench.job(1, {"n0": (0,)})
    bench.job(2, {"n0": (0,)})
    bench.tick()
    bench.tell(NodeReport(bench.now_ns, "n0", alone=(CpuSample(1, 0, 0, 1_000_000, 1),)))
    assert bench.state(1) is GangState.BUSY


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


MS = 1_000_000
SECOND = 1_000 * MS


def test_no_more_is_lost_than_was_planned_to_be() -> None:
    lost = LostTime()
    for number in range(10):
        lost.tell(number, 250 * MS, 250 * MS, again=True)
    lost.plan(500 * MS)
    assert (lost.take(0), lost.take(0)) == (500 * MS, 0)
    lost.plan(5_000 * MS)
    assert lost.take(0) == 2_000 * MS, "what was reported is not forgotten"


def test_no_more_is_lost_than_was_reported() -> None:
    lost = LostTime()
    lost.plan(SECOND)
    assert lost.take(0) == 0
    lost.tell(1, 100 * MS, 250 * MS, again=False)
    assert lost.take(0) == 100 * MS


def test_of_several_nodes_the_one_that_lost_most_of_a_slice_counts() -> None:
    lost = LostTime()
    lost.plan(SECOND)
    for lost_ms in (100, 240, 0, 170, 900):
        lost.tell(7, lost_ms * MS, 250 * MS, again=True)
    assert lost.reported_ns == 250 * MS


def test_a_slice_too_old_to_be_remembered_counts_for_nothing() -> None:
    lost = LostTime()
    for number in range(1_000):
        lost.tell(number, MS, MS, again=True)
    lost.tell(0, MS, MS, again=True)
    assert lost.reported_ns == 1_000 * MS
    assert len(lost._slices) < 300


def test_the_share_is_that_of_late() -> None:
    lost = LostTime(0)
    assert lost.share(0) == 0.0
    for second in range(1, 61):
        lost.tell(second, SECOND // 2, SECOND, again=False)
        lost.plan(SECOND)
        lost.take(second * SECOND)
    assert 0.45 <= lost.share(60 * SECOND) <= 0.55
    for second in range(61, 90):
        lost.plan(SECOND)
        lost.take(second * SECOND)
    assert lost.share(90 * SECOND) == 0.0
