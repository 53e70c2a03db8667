"""How soon a gang is believed to be idle or busy, and what keeps it from flapping."""

from __future__ import annotations

from gangd.core.demand import Demand, Level
from gangd.core.gang_settings import CoreSettings
from gangd.core.scheduler_events import CpuSample, NodeReport
from gangd.core.states import GangState
from tests.fixtures.core_bench import Bench

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
