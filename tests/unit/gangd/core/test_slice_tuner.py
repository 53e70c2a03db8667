"""Turns and hold modes of groups follow what is measured, between the administrator's bounds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.core import scheduler_events as core
from gangd.core import slice_timing
from gangd.core.cores import InvalidSettings
from gangd.core.gang_settings import MS, SECOND, CoreSettings
from tests.fixtures.core_bench import Bench, only
from tests.fixtures.tier import examples

PAIR = slice_timing.Contenders((1, 2), frozenset({0}), 2, True)


def tuned_settings(**more: Any) -> CoreSettings:
    return CoreSettings(**({"tune": True, "quantum_min_ns": 50 * MS, "quantum_max_ns": SECOND} | more))


@dataclass
class Hours:
    """A pace whose groups lose so much a switch, and leave such a share of their slices."""

    settings: CoreSettings
    groups: tuple[slice_timing.Contenders, ...] = (PAIR,)

    def __post_init__(self) -> None:
        self.pace = slice_timing.QuantumPace(self.settings, 0)
        self.now_ns = 0

    def look(self, lost_us: int | dict[int, int] = 100, left: float | None = None) -> slice_timing.TunedTurn:
        """Let five seconds pass; returns what gang 1 is to have then."""
        self.now_ns += slice_timing.LOOK_NS
        pace = self.pace
        for node in {node for group in self.groups for node in group.nodes}:
            lost = lost_us if isinstance(lost_us, int) else lost_us[node]
            pace.note(node, [lost] * 9, 300, self.now_ns)
        for group in self.groups:
            if left is None:
                break
            freezes = pace.tuner.tuned().get(group.gangs[0], slice_timing.TunedTurn(0, False)).freezes
            for gang in group.gangs:
                used_us, left_us = (1_000_000 * (1 - left), 0) if freezes else (10**6, 1_000_000 * left)
                pace.tuner.note(gang, 1, core.CpuSample(gang, int(used_us), 0, 1_000_000, 1))
                pace.tuner.note(gang, 1, core.CpuSample(gang, int(left_us), 0, 1_000_000, 1, 1_000_000))
        gangs = {gang for group in self.groups for gang in group.gangs}
        assert pace.look(self.now_ns, 2, lambda: self.groups, gangs)
        return pace.tuner.tuned().get(1, slice_timing.TunedTurn(0, False))


def test_what_switches_take_is_the_cost_of_a_lone_group_but_for_its_caches() -> None:
    hours = Hours(tuned_settings())
    turn = hours.look(5000)
    [group] = hours.pace.tuner.groups.values()
    assert group.cost_ns is not None
    assert hours.pace.lost_share == (group.cost_ns - slice_timing.REFILL_NS) / turn.turn_ns == 0.02


def test_usual_costs_keep_what_was_asked_for() -> None:
    hours = Hours(tuned_settings())
    assert {hours.look(100).turn_ns for _ in range(30)} == {250 * MS}
    assert hours.pace.quantum_ns == 250 * MS
    assert not hours.pace.is_changed


def test_turns_grow_with_the_cost_of_a_switch_and_come_back() -> None:
    hours = Hours(tuned_settings())
    grown = [hours.look(8_000).turn_ns // MS for _ in range(2 * slice_timing.BAD_LOOKS + 4)]
    assert grown[-1] == 1000
    assert grown == sorted(grown)
    assert [hours.look(100).turn_ns // MS for _ in range(6 * slice_timing.GOOD_LOOKS)][-1] == 250


def test_long_slices_become_as_short_as_their_cost_allows() -> None:
    hours = Hours(tuned_settings(quantum_ns=SECOND))
    for _ in range(8 * slice_timing.GOOD_LOOKS):
        turn = hours.look(100)
    assert turn.turn_ns == 250 * MS  # 125 ms would lose 1.7%


def test_one_late_look_changes_nothing() -> None:
    hours = Hours(tuned_settings())
    assert {hours.look(lost).turn_ns for lost in (100, 90_000, 100, 90_000, 100)} == {250 * MS}


def test_a_slow_node_lengthens_the_turns_of_its_own_groups_alone() -> None:
    """One of a hundred nodes is slow: the rule for all nodes leaves its gangs with what it loses."""
    groups = tuple(
        slice_timing.Contenders((2 * n + 1, 2 * n + 2), frozenset({n}), 2, False) for n in range(100)
    )
    hours = Hours(tuned_settings(), groups)
    for _ in range(10):
        hours.look({node: 9_000 if node == 7 else 100 for node in range(100)})
    turns = {group.gangs[0]: group.turn_ns // MS for group in hours.pace.tuner.groups.values()}
    assert (turns.pop(15), set(turns.values())) == (1000, {250})
    assert hours.pace.quantum_ns == 250 * MS


def test_a_group_with_one_slow_node_of_many_goes_by_the_others() -> None:
    hours = Hours(tuned_settings(), (slice_timing.Contenders((1, 2), frozenset(range(40)), 2, False),))
    lost = {node: 90_000 if node == 7 else 100 for node in range(40)}
    assert {hours.look(lost).turn_ns for _ in range(9)} == {250 * MS}


def test_turns_on_a_crowded_core_stay_below_the_freeze_cap() -> None:
    crowd = (slice_timing.Contenders(tuple(range(1, 9)), frozenset({0}), 8, False),)
    hours = Hours(tuned_settings(quantum_max_ns=5 * SECOND, freeze_cap_ns=4 * SECOND), crowd)
    assert max(hours.look(90_000).turn_ns for _ in range(20)) == 500 * MS


def test_gangs_that_leave_nothing_are_frozen_and_yield_again_at_once() -> None:
    hours = Hours(tuned_settings())
    assert [hours.look(left=0.01).freezes for _ in range(3)] == [False, True, True]
    assert not hours.look(left=0.2).freezes
    assert [hours.look(left=0.01).freezes for _ in range(6)] == [False] * 4 + [True] * 2


def test_what_was_used_under_the_former_hold_mode_does_not_count() -> None:
    hours = Hours(tuned_settings())
    while not hours.look(left=0.01).freezes:
        pass
    assert hours.look(left=0.5).freezes  # reported since, and begun before
    assert not hours.look(left=0.5).freezes


def test_gangs_that_leave_something_are_never_frozen() -> None:
    hours = Hours(tuned_settings())
    assert not any(hours.look(left=0.04).freezes for _ in range(50))


def test_one_gang_that_must_yield_keeps_its_group_yielding() -> None:
    hours = Hours(tuned_settings(), (PAIR._replace(may_freeze=False),))
    assert not any(hours.look(left=0.0).freezes for _ in range(9))


def test_patience_wears_out_only_so_far() -> None:
    hours = Hours(tuned_settings())
    waited = []
    for _ in range(8):
        looks = 1
        while not hours.look(left=0.0).freezes:
            looks += 1
        waited.append(looks)
        while hours.look(left=0.5).freezes:
            pass
    assert waited == [2, 5, 9, 17, 33, *[slice_timing.MOST_PATIENCE + 1] * 3]


def test_a_frozen_gang_that_falls_idle_takes_longer_to_be_frozen_again() -> None:
    hours = Hours(tuned_settings())
    while not hours.look(left=0.0).freezes:
        pass
    gone = hours.groups
    hours.groups = ()
    hours.now_ns += slice_timing.LOOK_NS
    hours.pace.look(hours.now_ns, 2, tuple, {1, 2})  # both are there, and neither contends
    assert not hours.pace.tuner.tuned()
    hours.groups = gone
    assert [hours.look(left=0.0).freezes for _ in range(4)] == [False, False, False, True]


def test_a_new_gang_lets_its_group_begin_anew_and_one_that_ends_does_not() -> None:
    three = slice_timing.Contenders((1, 2, 3), frozenset({0}), 3, True)
    hours = Hours(tuned_settings(), (three,))
    for _ in range(9):
        grown = hours.look(9_000, left=0.0)
    assert grown == slice_timing.TunedTurn(1000 * MS, True)
    hours.groups = (PAIR,)
    assert hours.look(9_000, left=0.0) == grown
    hours.groups = (three,)
    assert hours.look(100, left=0.0) == slice_timing.TunedTurn(250 * MS, False)


def test_agents_that_report_nothing_change_nothing() -> None:
    hours = Hours(tuned_settings())
    for _ in range(9):
        grown = hours.look(9_000, left=0.0)
    for _ in range(60):
        hours.now_ns += slice_timing.LOOK_NS
        hours.pace.look(hours.now_ns, 2, lambda: hours.groups, {1, 2})
    assert hours.pace.tuner.tuned()[1] == grown


def test_a_clock_that_leaps_is_one_look() -> None:
    hours = Hours(tuned_settings())
    hours.look(100)
    hours.now_ns += 3600 * SECOND
    assert hours.look(100).turn_ns == 250 * MS


@pytest.mark.parametrize(
    ("bounds", "named"),
    [
        ({"quantum_min_ns": 300 * MS}, "quantum_min_ms is 300"),
        ({"quantum_min_ns": 10 * MS}, "quantum_min_ms is 10"),
        ({"quantum_max_ns": 200 * MS}, "quantum_max_ms is 200"),
        ({"quantum_max_ns": 6 * SECOND}, "quantum_max_ms is 6000"),
        ({"quantum_min_ns": SECOND, "quantum_max_ns": 50 * MS}, "quantum_min_ms is 1000"),
        ({"quantum_ns": 2 * SECOND}, "quantum_max_ms is 1000"),
    ],
)
def test_bounds_that_cannot_be_obeyed_are_refused(bounds: dict[str, int], named: str) -> None:
    with pytest.raises(InvalidSettings, match=named):
        tuned_settings(**bounds)
    CoreSettings(**bounds)  # type: ignore[arg-type]  # they count only where slices tune themselves


def test_equal_bounds_leave_no_choice() -> None:
    hours = Hours(tuned_settings(quantum_min_ns=250 * MS, quantum_max_ns=250 * MS))
    assert {hours.look(lost).turn_ns for lost in [90_000] * 9 + [0] * 20} == {250 * MS}


@examples(200)
@given(
    st.integers(20, 5000),
    st.integers(20, 5000),
    st.integers(20, 5000),
    st.integers(50, 20_000),
    st.integers(2, 9),
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1)), max_size=12),
)
def test_turns_stay_within_bounds_converge_and_lose_no_more_than_what_was_asked_for(
    least: int, asked: int, most: int, lost_us: int, crowd: int, before: list[tuple[int, float]]
) -> None:
    least, asked, most = sorted((least, asked, most))
    settings = tuned_settings(
        quantum_min_ns=least * MS, quantum_ns=asked * MS, quantum_max_ns=most * MS, freeze_cap_ns=60 * SECOND
    )
    hours = Hours(settings, (PAIR._replace(crowd=crowd),))
    for lost, left in before:
        assert least * MS <= hours.look(lost, left).turn_ns <= most * MS
    turns = [hours.look(lost_us).turn_ns for _ in range(20 * slice_timing.GOOD_LOOKS)]
    assert least * MS <= min(turns)
    assert max(turns) <= most * MS
    assert len(set(turns[10 * slice_timing.GOOD_LOOKS :])) == 1, "it swings"
    cost_ns = 1000 * lost_us + slice_timing.REFILL_NS
    assert cost_ns / turns[-1] <= cost_ns / (asked * MS) + 0.02


@examples(100)
@given(st.lists(st.floats(0, 0.1), min_size=1, max_size=300))
def test_being_frozen_takes_two_percent_at_most_but_for_the_looks_that_find_out(leaves: list[float]) -> None:
    """Each return takes two looks, and the next one takes twice as long to come."""
    hours = Hours(tuned_settings())
    lost, returns, frozen = 0.0, 0, False
    for left in leaves:
        now = hours.look(left=left).freezes
        lost += min(left, slice_timing.IDLE_LITTLE) if frozen and now else 0.0
        returns += frozen and not now
        frozen = now
    assert lost <= slice_timing.IDLE_LITTLE * len(leaves)
    assert sum(2**number for number in range(1, returns + 1)) <= len(leaves)


# In the scheduler


def run(bench: Bench, lost_us: dict[str, int], slices: int, spare: float = 0.0) -> list[Any]:
    """Let nodes report switches, and what jobs used: own slices, and a share of others' while they yield."""
    commands: list[Any] = []
    for _ in range(slices):
        length_us = bench.scheduler.time.length_ns(bench.slice) // 1000
        for node in bench.names if bench.slice else ():
            held = bench.held(node, bench.slice - 1)
            gangs = bench.scheduler.gangs
            frozen = tuple(job for job in held if gangs[job].hold is core.HoldMode.FREEZE)
            samples = [
                core.CpuSample(job, int(length_us * 2 * (1 - spare)), 0, length_us, 2)
                if job not in held
                else core.CpuSample(job, int(length_us * 2 * spare), 0, length_us, 2, length_us)
                for job in bench.jobs
                if job not in frozen
            ]
            yielding = tuple(job for job in held if job not in frozen)
            lost = lost_us[node]
            use = core.SliceUse(bench.slice - 1, lost, lost, frozen, tuple(samples), yielding)
            commands += bench.tell(core.NodeReport(bench.now_ns, node, (use,), rtt_us=300))
        commands += bench.tick()
    return commands


def two_pairs(**more: Any) -> Bench:
    """Two jobs on each of two nodes."""
    bench = Bench(tune=True, quantum_min_ns=50 * MS, freeze_cap_ns=5 * SECOND, **more)
    for number, node in enumerate(("n0", "n0", "n1", "n1"), 1):
        bench.job(number, {node: (0, 1)}, hold=core.HoldMode.YIELD, may_freeze=number <= 2)
    return bench


def test_scheduler_gives_each_group_its_turns_and_its_hold_mode() -> None:
    bench = two_pairs()
    commands = run(bench, {"n0": 6_000, "n1": 100}, 400)
    gangs = bench.scheduler.gangs
    assert bench.scheduler.time.quantum_ns == 250 * MS
    assert [gangs[job].hold for job in (1, 3)] == [core.HoldMode.FREEZE, core.HoldMode.YIELD]
    owners = bench.owners(bench.slice + 2, 16)
    assert sum((1 in one) != (1 in two) for one, two in pairwise(owners)) <= 4
    assert sum((3 in one) != (3 in two) for one, two in pairwise(owners)) == 15
    published = [track for publish in only(commands, core.Publish) for track in publish.tracks]
    assert published[-1].members
    assert {gang: track.members[0].hold for track in published for gang in [track.name]}[
        1
    ] is core.HoldMode.FREEZE
    group = bench.scheduler.pace.tuner.groups[1, 2]
    assert (group.turn_ns, group.freezes, group.left) == (1000 * MS, True, 0.0)
    assert bench.scheduler.pace.lost_share == pytest.approx(6 / 1000, rel=0.25)  # of its turn, not of a slice
    run(bench, {"n0": 6_000, "n1": 100}, 60, spare=0.3)
    assert gangs[1].hold is core.HoldMode.YIELD


def test_a_rule_for_jobs_comes_before_what_is_measured() -> None:
    bench = two_pairs()
    for number in (1, 2):
        bench.job(number, {"n0": (0, 1)}, hold=core.HoldMode.YIELD, quantum_ns=2 * SECOND)
    run(bench, {"n0": 100, "n1": 100}, 100)
    gang = bench.scheduler.gangs[1]
    assert (gang.quantum_ns, gang.hold) == (2 * SECOND, core.HoldMode.YIELD)


def test_a_reload_while_slices_tune_themselves_begins_anew() -> None:
    bench = two_pairs()
    run(bench, {"n0": 6_000, "n1": 6_000}, 400)
    assert bench.scheduler.time.quantum_ns == 1000 * MS
    bench.tell(core.Reload(bench.now_ns, CoreSettings(freeze_cap_ns=5 * SECOND)))
    gangs = bench.scheduler.gangs
    assert {gang.hold for gang in gangs.values()} == {core.HoldMode.YIELD}
    assert {gang.quantum_ns for gang in gangs.values()} == {0}
    run(bench, {"n0": 100, "n1": 100}, 4)
    assert bench.scheduler.time.quantum_ns == 250 * MS
    assert sorted(map(sorted, bench.owners(bench.slice, 2))) == [[1, 3], [2, 4]]


def test_a_node_that_is_lost_lets_its_gangs_go_and_tunes_nothing() -> None:
    bench = two_pairs()
    run(bench, {"n0": 6_000, "n1": 100}, 100)
    bench.silent.add("n0")
    bench.tell(core.AgentLost(bench.now_ns, "n0", "test"))
    run(bench, {"n0": 0, "n1": 100}, 0)
    bench.ticks(60)
    assert bench.scheduler.gangs[1].tuned is None


def test_switched_off_nothing_is_tuned() -> None:
    bench = two_pairs()
    bench.tell(core.Reload(0, CoreSettings(freeze_cap_ns=5 * SECOND)))
    run(bench, {"n0": 100, "n1": 100}, 100)
    assert {gang.tuned for gang in bench.scheduler.gangs.values()} == {None}


@pytest.mark.parametrize("tune", [True, False])
def test_slices_grow_while_tasks_wait_for_memory_and_shrink_when_they_do_not(tune: bool) -> None:
    settings = CoreSettings(tune=tune, quantum_max_ns=SECOND)
    hours, stalled_us, lengths = Hours(settings), 0, []
    for share in (*[0.06] * 10, *[0.03] * 10, *[0.01] * 20):
        stalled_us += int(share * slice_timing.LOOK_NS / 1000)
        hours.now_ns += slice_timing.LOOK_NS
        hours.pace.note(0, [100] * 9, 300, hours.now_ns)
        hours.pace.note_stall(0, stalled_us, hours.now_ns)
        hours.pace.look(hours.now_ns, 2, lambda: hours.groups, {1, 2})
        lengths.append(hours.pace.quantum_ns // MS)
    assert lengths[9] == 1000, "as long as they may be"
    assert lengths[19] == 1000, "3% is no reason to make them shorter"
    assert lengths[-1] == 250
