"""Slices and lookahead follow the lateness that agents report, within bounds, and come back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.core.cores import InvalidSettings
from gangd.core.gang_settings import MS, SECOND, CoreSettings
from gangd.core.scheduler_events import Alarm, NodeReport, Publish, Reload, SliceUse
from gangd.core.slice_timing import GOOD_LOOKS, LITTLE_LOST, LOOK_NS, MORE_LOOKAHEAD, MOST_LOST, QuantumPace
from tests.fixtures.core_bench import Bench, only, shared
from tests.fixtures.tier import examples


def looks(
    pace: QuantumPace, lost_us: list[int], *, rtt_us: int = 300, nodes: int = 2, crowd: int = 2
) -> list[int]:
    """Let nodes lose so much a slice in each look; returns the length of slices after each, ms."""
    lengths = []
    for number, lost in enumerate(lost_us, getattr(pace, "looked", 0)):
        now_ns = (number + 1) * LOOK_NS
        for node in range(nodes):
            pace.note(node, [lost] * 40, rtt_us, now_ns)
        pace.look(now_ns, crowd)
        lengths.append(pace.quantum_ns // MS)
    pace.__dict__["looked"] = getattr(pace, "looked", 0) + len(lost_us)
    return lengths


def pace_of(**more: object) -> QuantumPace:
    return QuantumPace(CoreSettings(**more), 0)  # type: ignore[arg-type]


def test_calm_host_keeps_what_was_asked_for() -> None:
    for quantum_ms in (20, 50, 250, 5000):
        pace = pace_of(quantum_ns=quantum_ms * MS)
        assert set(looks(pace, [300] * 20)) == {quantum_ms}
        assert pace.lookahead == 2
        assert not pace.is_changed


def test_slices_grow_with_lateness_up_to_a_bound_and_come_back() -> None:
    pace = pace_of(quantum_ns=50 * MS, quantum_max_ns=300 * MS)
    assert looks(pace, [2_000] * 3) == [50, 100, 100]
    assert looks(pace, [100_000] * 8) == [100, 200, 200, 300, 300, 300, 300, 300]
    back = looks(pace, [200] * 4 * GOOD_LOOKS)
    assert (back[0], back[-1], set(back)) == (300, 50, {300, 200, 100, 50})


def test_one_bad_look_changes_nothing() -> None:
    assert set(looks(pace_of(quantum_ns=50 * MS), [200, 200, 9_000, 200, 200, 9_000, 200])) == {50}


@pytest.mark.parametrize("noise", [0.8, 1.2])
def test_lateness_between_the_thresholds_does_not_swing(noise: float) -> None:
    pace = pace_of(quantum_ns=50 * MS)
    threshold_us = int(MOST_LOST * 50_000)
    lengths = looks(pace, [threshold_us * 2] * 2 + [int(threshold_us * noise), threshold_us] * 40)
    assert sum(one != other for one, other in pairwise(lengths)) <= 1


def test_slices_never_grow_beyond_what_the_freeze_cap_allows() -> None:
    pace = pace_of(quantum_ns=250 * MS, quantum_max_ns=5 * SECOND, freeze_cap_ns=2 * SECOND)
    assert max(looks(pace, [900_000] * 20, crowd=4)) == 500
    assert looks(pace, [900_000] * 2, crowd=9)[-1] == 250  # a core became crowded: what was asked for is kept


def test_one_broken_node_does_not_slow_the_others() -> None:
    pace = pace_of(quantum_ns=50 * MS)
    for number in range(1, 9):
        for node in range(40):
            pace.note(node, [200_000 if node == 7 else 300] * 20, 300, number * LOOK_NS)
        assert not pace.look(number * LOOK_NS, 2)


def test_lookahead_grows_with_the_round_trip_and_shrinks_slowly() -> None:
    pace = pace_of(quantum_ns=20 * MS)
    looks(pace, [300], rtt_us=300)
    assert pace.lookahead == 2
    looks(pace, [300] * 2, rtt_us=12_000)
    assert pace.lookahead == 4
    looks(pace, [300] * 2, rtt_us=900_000)
    assert pace.lookahead == 2 + MORE_LOOKAHEAD
    looks(pace, [300] * 3, rtt_us=300)
    assert pace.lookahead == 2 + MORE_LOOKAHEAD
    looks(pace, [300] * 8 * GOOD_LOOKS, rtt_us=300)
    assert pace.lookahead == 2


def test_what_no_one_reports_any_more_is_forgotten() -> None:
    pace = pace_of(quantum_ns=50 * MS)
    looks(pace, [9_000] * 4)
    assert pace.quantum_ns > 50 * MS
    looks(pace, [0] * 4 * GOOD_LOOKS, nodes=0)
    assert pace.quantum_ns == 50 * MS
    assert pace.lost_share is None


def test_switched_off_nothing_adapts() -> None:
    pace = pace_of(quantum_ns=50 * MS, adapt=False)
    assert set(looks(pace, [90_000] * 20, rtt_us=90_000)) == {50}
    assert pace.lookahead == 2


def test_greatest_length_is_checked() -> None:
    with pytest.raises(InvalidSettings, match="slices grow"):
        CoreSettings(quantum_max_ns=0)


@examples(100)
@given(
    st.integers(20, 5000),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 9)), max_size=60),
)
def test_pace_stays_within_its_bounds_whatever_is_reported(
    quantum_ms: int, script: list[tuple[int, int, int]]
) -> None:
    pace = pace_of(quantum_ns=quantum_ms * MS)
    asked = pace.quantum_ns
    for number, (lost_us, rtt_us, crowd) in enumerate(script, 1):
        pace.note(0, [lost_us] * 9, rtt_us, number * LOOK_NS)
        before = pace.quantum_ns
        pace.look(number * LOOK_NS, crowd)
        assert asked <= pace.quantum_ns <= max(asked, min(SECOND, 5 * SECOND // crowd))
        assert pace.quantum_ns <= 2 * before
        assert 2 <= pace.lookahead <= 2 + MORE_LOOKAHEAD


def late(bench: Bench, lost_us: int, ticks: int) -> list[object]:
    """Let all nodes report so much lost time in each slice."""
    commands: list[object] = []
    for _ in range(ticks):
        if bench.slice:
            for node in bench.names:
                use = SliceUse(bench.slice - 1, lost_us, lost_us, (), ())
                commands += bench.tell(NodeReport(bench.now_ns, node, (use,), rtt_us=300))
        commands += bench.tick()
    return commands


def test_scheduler_publishes_longer_slices_from_a_slice_that_is_not_final_and_says_so() -> None:
    bench = shared(quantum_ns=50 * MS, freeze_cap_ns=5 * SECOND)
    late(bench, 200, 30)
    assert bench.scheduler.time.quantum_ns == 50 * MS
    horizon = bench.scheduler.horizon
    commands = late(bench, 4_000, 300)
    rebased = [publish for publish in only(commands, Publish) if publish.rebase]  # type: ignore[arg-type]
    assert len(rebased) == 2
    assert rebased[0].first_slice > horizon
    raised = [alarm for alarm in only(commands, Alarm) if alarm.kind == "late switches"]  # type: ignore[arg-type]
    assert [alarm.cleared for alarm in raised] == [False, True, False]
    assert "slices of 200 ms" in raised[-1].text
    assert "asked for: 50 ms" in raised[-1].text
    assert bench.scheduler.time.quantum_ns == 200 * MS
    assert sorted(map(sorted, bench.owners(bench.slice, 2))) == [[1], [2]]
    commands = late(bench, 100, 700)
    assert bench.scheduler.time.quantum_ns == 50 * MS
    assert only(commands, Alarm)[-1].cleared  # type: ignore[arg-type]


def test_reload_begins_anew_from_what_is_asked_for() -> None:
    bench = shared(quantum_ns=50 * MS)
    late(bench, 4_000, 300)
    assert bench.scheduler.time.quantum_ns > 50 * MS
    commands = bench.tell(Reload(bench.now_ns, CoreSettings(quantum_ns=50 * MS, adapt=False)))
    assert [alarm.cleared for alarm in only(commands, Alarm)] == [True]
    bench.tick()
    assert bench.scheduler.time.quantum_ns == 50 * MS


def test_thresholds_allow_hysteresis() -> None:
    assert LITTLE_LOST < MOST_LOST
