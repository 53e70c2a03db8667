"""The gang scheduler's slices, rows, ends, and exceptions."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangd.core.cores import CoreMap, InvalidEvent, InvalidSettings, InvalidTransition
from gangd.core.gang import KEPT_NS, MOST_A_NODE, Gang, Launches
from gangd.core.gang_settings import CoreSettings
from gangd.core.scheduler import GangScheduler
from gangd.core.scheduler_events import (
    AgentJoined,
    AgentLost,
    Alarm,
    AskSlurm,
    Command,
    CpuSample,
    Event,
    Exempt,
    ExemptKind,
    GangJobState,
    JobView,
    MoveEnd,
    NodeReport,
    Publish,
    RecordRows,
    Reload,
    Shutdown,
    SliceRow,
    SliceUse,
    SlurmSnapshot,
    ThawAll,
    Tick,
)
from gangd.core.states import GANG_TABLE, AgentState, GangInput, GangState, transition
from gangd.core.states_document import render
from tests.fixtures.core_bench import MS, QUANTUM, WALL_S, Bench, only, shared

REPOSITORY = Path(__file__).parents[4]


def test_jobs_that_share_no_core_are_never_touched() -> None:
    bench = Bench()
    bench.job(1, {"n0": (0,)})
    bench.job(2, {"n0": (1,)})
    assert only(bench.tick(), Publish) == []
    assert bench.state(1) is GangState.SOLO
    assert bench.scheduler.owners(5) == {1, 2}


def test_a_steady_schedule_is_published_once() -> None:
    bench = shared()
    [publish] = only(bench.tick(), Publish)
    [track] = publish.tracks
    assert publish.first_slice == 2
    assert track.repeat
    assert [member.gang for member in track.members] == [1, 2]
    assert track.run.tolist() == [[True, False], [False, True]]
    assert all(not only(bench.tick(), Publish) for _ in range(100))


def test_ticks_may_be_left_out_while_the_schedule_repeats_and_nothing_happens() -> None:
    bench = shared(ticks=2)
    assert bench.scheduler.at_rest
    bench.job(3)
    bench.snapshot()
    assert not bench.scheduler.at_rest
    bench.ticks(4)
    assert bench.scheduler.at_rest
    before = [bench.owners(number, 1)[0] for number in range(bench.slice + 2, bench.slice + 40)]
    bench.slice += 30  # no tick comes for so long
    assert not only(bench.tick(), Publish)
    assert [bench.owners(number, 1)[0] for number in range(bench.slice + 2, bench.slice + 9)] == before[31:38]


def test_a_change_begins_beyond_what_is_final() -> None:
    bench = shared(ticks=10)
    del bench.jobs[2]
    [publish] = only(bench.tick(), Publish)
    assert (publish.first_slice, publish.drop, publish.tracks) == (12, (1,), ())


def test_only_the_group_that_changed_is_published_again() -> None:
    bench = Bench(nodes=4)
    for number in range(1, 9):
        bench.job(number, {f"n{(number - 1) // 2}": (0, 1)})
    [publish] = only(bench.tick(), Publish)
    assert [track.name for track in publish.tracks] == [1, 3, 5, 7]
    del bench.jobs[6]
    [publish] = only(bench.tick(), Publish)
    assert (publish.tracks, publish.drop) == ((), (5,))
    assert {1, 2, 3, 4, 7, 8} - bench.scheduler.owners(9)


def test_wide_and_narrow_jobs_use_every_slice() -> None:
    bench = Bench(nodes=1, cores=3)
    bench.job(1, {"n0": (0, 1, 2)})
    for core in range(3):
        bench.job(2 + core, {"n0": (core,)})
    bench.tick()
    assert bench.owners(2, 4) == [{1}, {2, 3, 4}, {1}, {2, 3, 4}]


def test_weights_divide_the_slices() -> None:
    bench = Bench(nodes=1)
    bench.job(1, weight=3.0)
    bench.job(2)
    bench.tick()
    bench.ticks(40)
    slices = bench.owners(40, 40)
    assert sum(1 in owners for owners in slices) == 30
    assert sum(2 in owners for owners in slices) == 10


def test_an_idle_job_takes_no_slice_and_is_not_held() -> None:
    bench = shared(ticks=1)
    for _ in range(6):
        bench.tick()
        bench.see(1, 0.01)
    assert bench.state(1) is GangState.IDLE
    [publish] = only(bench.tick(), Publish)
    assert bench.owners(publish.first_slice, 3) == [{1, 2}] * 3
    assert [(track.name, track.run.tolist()) for track in publish.tracks] == [(1, [[True]]), (2, [[True]])], (
        "both are to be sampled"
    )


def test_a_job_is_idle_only_if_all_of_its_nodes_are() -> None:
    bench = shared(ticks=1)
    for _ in range(30):
        bench.tick()
        bench.see(1, 0.0, nodes=["n0"])
        bench.see(1, 0.9, nodes=["n1"])
    assert bench.state(1) is GangState.BUSY


def test_one_busy_sample_among_idle_ones_keeps_a_job_busy() -> None:
    bench = shared(ticks=1)
    for round_ in range(40):
        bench.tick()
        bench.see(1, 0.9 if round_ % 4 == 0 else 0.0)
    assert bench.state(1) is GangState.BUSY


def test_run_queue_delay_counts_as_demand() -> None:
    bench = shared(ticks=1)
    for _ in range(12):
        bench.tick()
        for name in bench.names:
            use = SliceUse(bench.slice - 1, 0, 0, (), (CpuSample(1, 20, 700, 1000, 1),))
            bench.tell(NodeReport(bench.now_ns, name, (use,)))
    assert bench.state(1) is GangState.BUSY


def idle_with_busy() -> Bench:
    bench = shared(ticks=1)
    while bench.state(1) is not GangState.IDLE:
        bench.tick()
        bench.see(1, 0.0)
    for _ in range(3):
        bench.tick()
        bench.see(1, 0.0)
    return bench


def test_a_job_that_wakes_is_not_held_and_first_in_line() -> None:
    bench = idle_with_busy()
    bench.see(1, 0.8)
    bench.tick()
    bench.see(1, 0.8)
    assert bench.state(1) is GangState.WAKING
    assert bench.scheduler.owners(bench.slice) == {1, 2}
    bench.tick()
    bench.see(1, 0.8)
    assert bench.state(1) is GangState.BUSY
    [publish] = only(bench.tick(), Publish)
    assert bench.owners(publish.first_slice, 4) == [{1}, {2}, {1}, {2}]


def test_a_burst_shorter_than_a_slice_costs_the_owner_no_slice() -> None:
    bench = idle_with_busy()
    bench.see(1, 0.8)
    commands = bench.tick()
    for _ in range(5):
        bench.see(1, 0.0)
        commands += bench.tick()
    assert bench.state(1) is GangState.IDLE
    assert only(commands, Publish) == []


def test_a_short_burst_is_forgotten_sooner_than_a_long_history() -> None:
    bench = idle_with_busy()
    for _ in range(3):
        bench.tick()
        bench.see(1, 0.9)
    assert bench.state(1) is GangState.BUSY
    for _ in range(2):
        bench.tick()
        bench.see(1, 0.0)
    assert bench.state(1) is GangState.IDLE


def test_a_new_quantum_counts_from_the_first_slice_that_is_not_final() -> None:
    bench = shared(ticks=1)
    bench.tell(Reload(bench.now_ns, replace(bench.scheduler.settings, quantum_ns=100 * MS)))
    [publish] = only(bench.tick(), Publish)
    assert publish.rebase
    assert publish.first_slice == 3
    time = bench.scheduler.time
    assert [time.start_ns(number) // MS for number in range(1, 6)] == [250, 500, 750, 850, 950]
    assert time.slice_at(800 * MS) == 3
    assert [track.first_slice for track in publish.tracks] == [3]


def test_who_keeps_to_a_longer_lease_is_not_lost_when_it_is_made_shorter() -> None:
    bench = shared(lease_ns=10_000 * MS, ticks=1)
    bench.silent = {"n0"}
    pass_by(bench, 6_000)
    bench.tell(Reload(bench.now_ns, replace(bench.scheduler.settings, lease_ns=2_000 * MS)))
    bench.tick()
    assert bench.scheduler.agent_state("n0") is AgentState.JOINED
    pass_by(bench, 4_500)
    bench.tick()
    assert bench.scheduler.agent_state("n0") is AgentState.LOST
    pass_by(bench, 6_000)  # the former lease is over for everybody
    bench.tick()
    bench.silent = {"n0", "n1"}
    pass_by(bench, 2_500)
    bench.tick()
    assert bench.scheduler.agent_state("n1") is AgentState.LOST


def pass_by(bench: Bench, span_ms: int) -> None:
    """Let so much time pass without a word."""
    bench.slice += span_ms * MS // bench.scheduler.settings.quantum_ns


def test_a_stalled_controller_goes_on_from_the_present() -> None:
    bench = Bench(nodes=3, cores=2)
    for number in range(1, 7):
        bench.job(number, {f"n{number % 3}": (0,), f"n{(number + 1) % 3}": (0, 1)})
    bench.tick()
    bench.slice += 400
    for name in bench.names:
        bench.tell(NodeReport(bench.now_ns, name))
    commands = bench.tick()
    assert all(publish.first_slice == bench.slice + 1 for publish in only(commands, Publish))
    assert bench.scheduler.horizon == bench.slice + 1


def test_shutdown_thaws_and_closes() -> None:
    bench = shared(ticks=1)
    assert only(bench.tell(Shutdown(bench.now_ns)), ThawAll)
    with pytest.raises(InvalidEvent, match="after Shutdown"):
        bench.tell(Tick(bench.now_ns))


def invalid_events(bench: Bench) -> list[Event]:
    now = bench.now_ns
    view = bench.jobs[1]
    unknown = CoreMap({f"x{index}": 2 for index in range(9)})
    return [
        Tick(0),
        SlurmSnapshot(now, now + 1, 0.0, ()),
        SlurmSnapshot(now, now, float("nan"), ()),
        SlurmSnapshot(now, now, 0.0, (view, replace(view, gang=5))),
        SlurmSnapshot(now, now, 0.0, (replace(view, weight=0.0),)),
        SlurmSnapshot(now, now, 0.0, (replace(view, end_s=float("inf")),)),
        SlurmSnapshot(now, now, 0.0, (replace(view, cores=unknown.pack({"x8": (0,)})),)),
        NodeReport(now, "nowhere"),
        NodeReport(now, "n0", (SliceUse(10**6, 0, 0, (), ()),)),
        AgentJoined(now, "nowhere"),
        AgentLost(now, "nowhere", ""),
    ]


@pytest.mark.parametrize("which", range(11))
def test_an_invalid_event_is_refused_and_changes_nothing(which: int) -> None:
    bench = shared(ticks=5)
    before = pickle.dumps(bench.scheduler)
    with pytest.raises(InvalidEvent):
        bench.tell(invalid_events(bench)[which])
    assert pickle.dumps(bench.scheduler) == before


def test_reports_of_an_agent_that_never_said_hello_are_refused() -> None:
    bench = Bench(joined=False)
    for event in (NodeReport(1, "n0"), AgentLost(1, "n0", "")):
        with pytest.raises(InvalidEvent, match="before it said hello"):
            bench.tell(event)


def test_the_table_has_no_way_back_from_terminating() -> None:
    ways = [happened for state, happened in GANG_TABLE if state is GangState.TERMINATING]
    assert ways == [GangInput.VANISH]
    with pytest.raises(InvalidTransition, match="gang 7 is terminating: 'resume' is not possible"):
        transition(GANG_TABLE, GangState.TERMINATING, GangInput.RESUME, "gang 7")


@pytest.mark.parametrize(
    "wrong",
    [
        {"quantum_ns": 19 * MS},
        {"quantum_ns": 5001 * MS},
        {"quantum_ns": 4000 * MS, "freeze_cap_ns": 3000 * MS},
        {"busy_share": 0.1, "idle_share": 0.2},
        {"lookahead": 0},
        {"lease_ns": 0},
        {"grace_ns": -1},
        {"idle_samples": 0},
        {"move_near_ns": -1},
    ],
)
def test_settings_out_of_bounds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        CoreSettings(**wrong)


def test_core_numbers_follow_the_node() -> None:
    cores = CoreMap({"a": 2, "b": 3})
    packed = cores.pack({"b": (2, 0), "a": (1,)})
    assert (packed.numbers().tolist(), packed.nodes) == ([1, 2, 4], (0, 1))
    assert not cores.add("a", 2)
    assert cores.add("a", 4)
    assert cores.pack({"a": (3,)}).numbers().tolist() == [8]
    for wrong in ({"c": (0,)}, {"a": (4,)}, {"a": ()}, {}):
        with pytest.raises(InvalidEvent):
            cores.pack(wrong)
    with pytest.raises(InvalidEvent):
        cores.add("d", 0)


def test_the_page_on_states_is_up_to_date() -> None:
    assert (REPOSITORY / "docs" / "states.md").read_text() == render(), (
        "run 'python -m gangd.core.states_document > docs/states.md'"
    )


def test_the_picture_of_states_names_every_state_that_a_gang_can_be_in() -> None:
    picture = (REPOSITORY / "docs" / "pictures" / "states.svg").read_text()
    assert set(re.findall(">([A-Z]+)<", picture)) == {state.name for state in GangState} - {"GONE"}


def test_a_large_group_that_never_repeats_is_published_bit_by_bit() -> None:
    dice = np.random.default_rng(7)
    bench = Bench(nodes=8, cores=1)
    for number in range(1, 15):
        nodes = dice.choice(8, size=int(dice.integers(2, 5)), replace=False)
        bench.job(number, {f"n{node}": (0,) for node in nodes}, weight=float(dice.uniform(0.5, 2.0)))
    tracks: dict[int, Any] = {}
    uncovered = 0
    for _ in range(120):
        for publish in only(bench.tick(), Publish):
            for name in publish.drop:
                tracks.pop(name, None)
            tracks |= {track.name: track for track in publish.tracks}
        number = bench.slice + 1
        uncovered += sum(
            not track.repeat and number >= track.first_slice + len(track.run) for track in tracks.values()
        )
    assert uncovered == 0


def test_rows_report_what_each_job_did() -> None:
    bench = shared(record=True)
    bench.job(3, {"n0": (0,)}, opt_out=True)
    bench.tick()
    use = SliceUse(0, 42, 7, (2,), (CpuSample(1, 240_000, 0, 250_000, 1),))
    [record] = only(bench.tell(NodeReport(bench.now_ns, "n0", (use,))), RecordRows)
    assert [(row.job, row.role, row.cpu_us) for row in record.rows] == [
        (1, "run", 240_000),
        (2, "held", None),
        (3, "free", None),
    ]
    assert {(row.start_ns, row.length_ns, row.skew_us, row.freeze_us) for row in record.rows} == {
        (0, QUANTUM, 42, 7)
    }
    assert only(bench.tell(NodeReport(bench.now_ns, "n0", (use,))), RecordRows) == []


def test_what_a_gang_that_yields_gets_is_left_over() -> None:
    bench = shared(record=True, ticks=1)
    samples = (
        CpuSample(1, 180_000, 0, 250_000, 1),
        CpuSample(2, 60_000, 190_000, 250_000, 1, held_us=250_000),
    )
    use = SliceUse(0, 42, 7, (), samples, yielding=(2,))
    [record] = only(bench.tell(NodeReport(bench.now_ns, "n0", (use,))), RecordRows)
    assert [(row.job, row.role, row.cpu_us) for row in record.rows] == [
        (1, "run", 180_000),
        (2, "leftover", 60_000),
    ]


def test_rows_of_a_node_leave_out_components_that_are_elsewhere() -> None:
    bench = Bench(record=True)
    bench.job(10, {"n0": (0,)}, gang=10)
    bench.job(11, {"n1": (0,)}, gang=10)
    bench.job(12, {"n1": (0,)})
    bench.tick()
    [record] = only(bench.tell(NodeReport(bench.now_ns, "n1", (SliceUse(0, 0, 0, (12,), ()),))), RecordRows)
    assert [(row.job, row.role) for row in record.rows] == [(11, "run"), (12, "held")]


def holding(*nodes: str) -> Bench:
    """Two jobs that share all cores of two nodes; agents of these nodes, of both without any, hold them."""
    bench = shared()
    bench.holding = set(nodes or bench.names)
    return bench


def ends_after(bench: Bench, seconds: int, limit_s: float = 120.0) -> dict[int, float]:
    """How much later the ends of jobs 1 and 2 are made in some time; Slurm obeys."""
    ends = dict.fromkeys((1, 2), WALL_S + limit_s)
    for _ in range(4 * seconds):
        for number in (1, 2):
            bench.change(number, end_s=ends[number])
        for move in only(bench.tick(), MoveEnd):
            assert move.due_s == ends[move.job]
            ends[move.job] = move.end_s
    return {number: end_s - WALL_S - limit_s for number, end_s in ends.items()}


def test_a_job_that_was_planned_to_be_held_and_was_not_is_owed_nothing() -> None:
    assert ends_after(shared(), 200) == {1: 0, 2: 0}


def test_a_slice_counts_once_though_two_nodes_report_of_it_and_if_one_alone_does() -> None:
    both, one = ends_after(holding(), 200), ends_after(holding("n1"), 200)
    assert both == one
    assert all(100 <= later_s <= 100 + 40 for later_s in both.values())


def test_components_of_one_gang_lose_together() -> None:
    bench = Bench()
    bench.job(10, {"n0": (0,)}, gang=10)
    bench.job(11, {"n1": (0,)}, gang=10)
    bench.job(12, {"n1": (0,)})
    bench.holding = {"n1"}
    for number in (10, 11, 12):
        bench.change(number, end_s=WALL_S + 10_000)
    bench.ticks(4 * 60)
    lost = {job: kept["lost_s"] for job, kept in bench.scheduler.limits_state().items()}
    assert lost["10"] == lost["11"]
    assert all(25 <= seconds <= 30 for seconds in lost.values())


def test_far_from_its_end_a_job_is_lent_nothing() -> None:
    bench = holding()
    later = ends_after(bench, 300, limit_s=500.0)
    lost = {int(job): kept["lost_s"] for job, kept in bench.scheduler.limits_state().items()}
    assert all(60 <= later[job] <= lost[job] for job in (1, 2))


def test_what_was_lent_is_used_up_before_more_is_given() -> None:
    bench = holding()
    first = ends_after(bench, 80)
    bench.holding.clear()
    ends = {number: WALL_S + 120 + later_s for number, later_s in first.items()}
    for _ in range(4 * 120):
        for number in (1, 2):
            bench.change(number, end_s=ends[number])
        assert only(bench.tick(), MoveEnd) == []
    lost = {int(job): kept["lost_s"] for job, kept in bench.scheduler.limits_state().items()}
    assert all(lost[job] <= first[job] <= lost[job] + 40 for job in (1, 2))


def test_what_a_former_controller_kept_in_another_form_counts_for_nothing() -> None:
    bench = Bench()
    bench.job(1, end_s=WALL_S + 60)
    limits = {"1": {"start_s": 0.0, "base_s": 1.0, "credit_s": 2.0, "frozen_s": 3.0}}
    scheduler = GangScheduler(CoreSettings(), 0, bench.map, limits)
    scheduler.handle(SlurmSnapshot(0, 0, WALL_S, tuple(bench.jobs.values())))
    assert scheduler.limits_state() == {}


def test_the_end_moves_by_the_lost_time_and_rarely() -> None:
    bench = holding()
    ends = {1: WALL_S + 120, 2: WALL_S + 120}
    moves = []
    for _ in range(4 * 200):
        for number in (1, 2):
            bench.change(number, end_s=ends[number])
        for move in only(bench.tick(), MoveEnd):
            moves.append((bench.now_ns / 1e9, move.job, move.end_s))
            assert move.end_s > ends[move.job]
            ends[move.job] = move.end_s
    assert {job for _, job, _ in moves} == {1, 2}
    for number in (1, 2):
        times = [at for at, job, _ in moves if job == number]
        assert all(later - earlier >= 60 for earlier, later in pairwise(times))
        assert WALL_S + 120 + 100 <= ends[number] <= WALL_S + 120 + 100 + 60


def test_an_end_stops_where_a_reservation_begins_and_goes_on_when_that_is_gone() -> None:
    bench = holding()
    base_s = WALL_S + 120
    ends = {1: base_s, 2: base_s}
    bound_s: float | None = base_s + 20
    for tick in range(4 * 260):
        if tick == 4 * 180:
            assert base_s + 14 <= ends[1] <= base_s + 20  # owed much more: half of 180 s
            assert ends[2] > base_s + 60
            bound_s = None
        bench.change(1, end_s=ends[1], latest_s=bound_s)
        bench.change(2, end_s=ends[2])
        for move in only(bench.tick(), MoveEnd):
            assert move.end_s > ends[move.job]
            ends[move.job] = move.end_s
    assert ends[1] >= base_s + 90


def test_an_end_that_is_in_a_reservation_already_stays() -> None:
    bench = holding()
    for _ in range(4 * 100):
        bench.change(1, end_s=WALL_S + 120, latest_s=WALL_S + 30)
        assert [move for move in only(bench.tick(), MoveEnd) if move.job == 1] == []


def test_moved_ends_survive_a_restart() -> None:
    bench = holding()
    end_s = WALL_S + 120
    for _ in range(4 * 60):
        bench.change(1, end_s=end_s)
        for move in only(bench.tick(), MoveEnd):
            end_s = move.end_s
    assert end_s > WALL_S + 120
    state = bench.scheduler.limits_state()
    later = GangScheduler(CoreSettings(grace_ns=0), 0, bench.map, state)
    later.handle(SlurmSnapshot(0, 0, WALL_S + 60, (replace(bench.jobs[1], end_s=end_s),)))
    kept = later.limits_state()["1"]
    assert (kept["base_s"], kept["credit_s"]) == (WALL_S + 120, end_s - (WALL_S + 120))
    assert kept["lost_s"] == state["1"]["lost_s"]


def test_an_end_that_an_operator_set_is_moved_on_from_there() -> None:
    bench = holding()
    end_s = WALL_S + 120
    operator = False
    for tick in range(4 * 130):
        if tick == 4 * 62:
            operator, end_s = True, end_s + 1000
        bench.change(1, end_s=end_s)
        for move in only(bench.tick(), MoveEnd):
            assert move.end_s > end_s
            end_s = move.end_s
    assert operator
    assert WALL_S + 1120 + 60 <= end_s <= WALL_S + 1120 + 120


def test_an_unlimited_job_is_left_alone() -> None:
    bench = holding()
    assert only([command for _ in range(4 * 100) for command in bench.tick()], MoveEnd) == []
    assert bench.scheduler.limits_state() == {}


def test_a_new_job_is_not_held_during_its_launch_grace() -> None:
    bench = shared(grace_ns=1000 * MS)
    for _ in range(4):
        assert only(bench.tick(), Publish) == []
    assert bench.state(1) is GangState.NEW
    assert only(bench.tick(), Publish)


def test_the_grace_ends_when_the_tasks_run_on_all_nodes() -> None:
    bench = shared(grace_ns=5000 * MS, ticks=1)
    for job, node in ((1, "n0"), (1, "n1"), (2, "n0")):
        bench.tell(NodeReport(bench.now_ns, node, launched=(job,)))
    assert bench.state(1) is GangState.BUSY
    assert bench.state(2) is GangState.NEW
    bench.tick()
    assert bench.owners(0, 8) == [{1, 2}] * 8
    bench.tell(NodeReport(bench.now_ns, "n1", launched=(2,)))
    assert bench.scheduler.restless
    [publish] = only(bench.tick(), Publish)
    assert sorted(map(sorted, bench.owners(publish.first_slice, 2))) == [[1], [2]]


def test_tasks_may_run_before_slurm_reports_of_their_job() -> None:
    bench = Bench(grace_ns=5000 * MS)
    bench.job(1)
    bench.tick()
    for node in bench.names:
        bench.tell(NodeReport(bench.now_ns, node, launched=(1, 2)))
    bench.job(2)
    bench.snapshot()
    assert bench.state(2) is GangState.BUSY


def test_tasks_of_an_earlier_run_of_a_job_say_nothing_of_this_one() -> None:
    bench = shared(grace_ns=5000 * MS, ticks=1)
    for node in bench.names:
        bench.tell(NodeReport(bench.now_ns, node, launched=(1, 2)))
    bench.tick()
    bench.change(2, start_s=77.0)
    bench.tick()
    assert bench.state(2) is GangState.NEW


def test_a_node_may_speak_of_the_tasks_on_itself_only() -> None:
    bench = Bench(grace_ns=5000 * MS)
    bench.job(1, {"n0": (0,)})
    bench.job(2, {"n0": (0,)})
    bench.tick()
    bench.tell(NodeReport(bench.now_ns, "n1", launched=(1, 2)))
    bench.tick()
    assert bench.state(1) is bench.state(2) is GangState.NEW


def test_what_is_remembered_of_launches_is_bounded() -> None:
    launches = Launches()
    for job in range(1, 2 * MOST_A_NODE):
        launches.note(0, job, job)
    gang = Gang(
        MOST_A_NODE + 1, 0, {MOST_A_NODE + 1: JobView(MOST_A_NODE + 1, 1, Bench().map.pack({"n0": (0,)}))}, 0
    )
    assert not launches.complete(gang)
    launches.clear(KEPT_NS + 2 * MOST_A_NODE)
    launches.note(0, MOST_A_NODE + 1, 0)
    assert launches.complete(gang)


def test_a_cancelled_job_is_exempt_at_once_and_for_good() -> None:
    bench = shared(ticks=1)
    bench.change(2, state=GangJobState.TERMINATING)
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.member.gang, exempt.kind, exempt.on) == (2, ExemptKind.TERMINATING, True)
    bench.tick()
    bench.change(2, state=GangJobState.RUNNING)
    bench.tick()
    assert bench.state(2) is GangState.TERMINATING
    assert bench.scheduler.owners(20) == {1, 2}
    del bench.jobs[2]
    assert [exempt.on for exempt in only(bench.snapshot(), Exempt)] == [False]


def test_agents_see_a_kill_before_slurm_says_so() -> None:
    bench = shared(ticks=1)
    commands = bench.tell(NodeReport(bench.now_ns, "n1", dying=(2,)))
    assert [exempt.kind for exempt in only(commands, Exempt)] == [ExemptKind.FREE]
    assert only(commands, AskSlurm)
    bench.slice += 1
    bench.change(2, state=GangJobState.TERMINATING)
    reported = [(exempt.kind, exempt.on) for exempt in only(bench.snapshot(), Exempt)]
    assert reported == [(ExemptKind.FREE, False), (ExemptKind.TERMINATING, True)]


def test_a_kill_of_a_part_of_a_job_is_over_when_agents_cease_to_say_so() -> None:
    bench = shared(ticks=1)
    lease = bench.scheduler.settings.lease_ns // QUANTUM
    for _ in range(3 * lease):
        bench.slice += 1
        asked = only(bench.tell(NodeReport(bench.now_ns, "n1", dying=(2,))), AskSlurm)
        assert bool(asked) == (bench.slice == 2), "it asks once"
        bench.snapshot()  # Slurm says RUNNING
        assert bench.state(2) is GangState.FOREIGN
    bench.slice += lease
    bench.snapshot()
    assert bench.state(2) is GangState.FOREIGN
    bench.slice += 1
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.kind, exempt.on) == (ExemptKind.FREE, False)
    assert bench.state(2) is GangState.BUSY


def test_a_job_that_slurm_suspended_is_left_alone_until_it_runs() -> None:
    bench = shared(ticks=1)
    bench.change(2, state=GangJobState.SUSPENDED)
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.kind, exempt.on) == (ExemptKind.SUSPENDED, True)
    bench.tick()
    assert bench.scheduler.owners(20) == {1, 2}
    bench.change(2, state=GangJobState.RUNNING)
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.kind, exempt.on) == (ExemptKind.SUSPENDED, False)
    assert bench.state(2) is GangState.BUSY


def test_a_strange_freeze_state_stops_slicing_until_slurm_was_asked_again() -> None:
    bench = shared(ticks=1)
    asked_before = bench.now_ns
    bench.slice += 1
    commands = bench.tell(NodeReport(bench.now_ns, "n1", strange=(1,)))
    assert only(commands, AskSlurm)
    assert [alarm.subject for alarm in only(commands, Alarm)] == ["1"]
    assert [exempt.kind for exempt in only(commands, Exempt)] == [ExemptKind.FREE]
    views = tuple(bench.jobs.values())
    bench.tell(SlurmSnapshot(bench.now_ns, asked_before, WALL_S, views))
    assert bench.state(1) is GangState.FOREIGN
    bench.slice += 1
    bench.snapshot()
    assert bench.state(1) is GangState.BUSY


def test_alarm_of_a_strange_freeze_says_what_was_done_and_by_whose_hand() -> None:
    bench = shared(ticks=1)
    bench.slice += 1
    report = NodeReport(bench.now_ns, "n0", strange=(1, 2), acts=("stopping", "unheard of"))
    stopping, other = only(bench.tell(report), Alarm)
    assert [(alarm.job, alarm.nodes) for alarm in (stopping, other)] == [(1, ("n0",)), (2, ("n0",))]
    assert "SIGTSTP" in stopping.text
    assert other.text == only(bench.tell(NodeReport(bench.now_ns, "n0", strange=(2,))), Alarm)[0].text


def test_alarm_of_a_strange_freeze_names_the_job_and_every_node_that_found_it() -> None:
    bench = shared(ticks=1)
    bench.slice += 1
    bench.tell(NodeReport(bench.now_ns, "n0", strange=(2,)))
    (alarm,) = only(bench.tell(NodeReport(bench.now_ns, "n1", strange=(2,))), Alarm)
    assert (alarm.kind, alarm.subject) == ("foreign freeze", "2")
    assert (alarm.job, alarm.nodes) == (2, ("n0", "n1"))
    (alarm,) = only(bench.tell(NodeReport(bench.now_ns, "n1", strange=(1,))), Alarm)
    assert (alarm.job, alarm.nodes) == (1, ("n1",))
    bench.slice += 1
    bench.snapshot()  # Slurm has explained the first
    (alarm,) = only(bench.tell(NodeReport(bench.now_ns, "n1", strange=(2,))), Alarm)
    assert alarm.nodes == ("n1",)


def test_a_strange_freeze_that_turns_out_to_be_slurms_is_left_to_slurm() -> None:
    bench = shared(ticks=1)
    bench.slice += 1
    bench.tell(NodeReport(bench.now_ns, "n1", strange=(1,)))
    bench.slice += 1
    bench.change(1, state=GangJobState.SUSPENDED)
    reported = [(exempt.kind, exempt.on) for exempt in only(bench.snapshot(), Exempt)]
    assert reported == [(ExemptKind.FREE, False), (ExemptKind.SUSPENDED, True)]
    assert bench.state(1) is GangState.FOREIGN


def test_a_job_with_a_node_without_agent_is_held_nowhere() -> None:
    bench = shared(joined=False)
    bench.tell(AgentJoined(0, "n0"))
    for _ in range(5):
        assert only(bench.tick(), Publish) == []
    assert bench.state(1) is GangState.FREE
    bench.tell(AgentJoined(bench.now_ns, "n1"))
    assert only(bench.tick(), Publish)


def test_a_silent_agent_frees_its_jobs_everywhere_until_it_is_back() -> None:
    bench = shared(nodes=3)
    bench.job(3, {"n2": (0, 1)})
    bench.tick()
    bench.silent = {"n0"}
    commands = []
    for _ in range(9):
        commands += bench.tick()
    assert [(alarm.subject, alarm.cleared) for alarm in only(commands, Alarm)] == [("n0", False)]
    exempts = only(commands, Exempt)
    assert [(exempt.member.gang, exempt.kind, exempt.on) for exempt in exempts] == [
        (1, ExemptKind.FREE, True),
        (2, ExemptKind.FREE, True),
    ]
    assert bench.scheduler.owners(30) == {1, 2, 3}
    bench.silent = set()
    commands = bench.tell(NodeReport(bench.now_ns, "n0"))
    assert [exempt.on for exempt in only(commands, Exempt)] == [False, False]
    assert [alarm.cleared for alarm in only(commands, Alarm)] == [True]
    assert only(bench.tick(), Publish)


def test_an_agent_whose_words_wait_to_be_read_is_not_silent() -> None:
    """A controller that has much to read must not let everything go for it."""
    bench = shared(ticks=1)
    heard_ns = bench.now_ns
    bench.slice += 40
    commands = bench.tell(Tick(bench.now_ns, heard_ns))
    assert only(commands, Alarm) == []
    assert bench.scheduler.agent_state("n0") is AgentState.JOINED
    commands = bench.tell(Tick(bench.now_ns, bench.now_ns))
    assert {alarm.subject for alarm in only(commands, Alarm)} == {"n0", "n1"}
    assert bench.scheduler.agent_state("n0") is AgentState.LOST


def test_an_agent_that_says_farewell_is_lost_at_once() -> None:
    bench = shared(ticks=1)
    commands = bench.tell(AgentLost(bench.now_ns, "n1", "it leaves"))
    assert [exempt.kind for exempt in only(commands, Exempt)] == [ExemptKind.FREE] * 2


def test_a_job_that_opted_out_runs_and_the_others_take_turns() -> None:
    bench = shared()
    bench.job(3, opt_out=True)
    bench.tick()
    assert bench.owners(2, 2) == [{1, 3}, {2, 3}]


def test_components_of_a_heterogeneous_job_are_one_gang() -> None:
    bench = Bench()
    bench.job(10, {"n0": (0, 1)}, gang=10)
    bench.job(11, {"n1": (0, 1)}, gang=10)
    bench.job(12, {"n1": (0, 1)})
    [publish] = only(bench.tick(), Publish)
    [track] = publish.tracks
    assert [[job for job, _ in member.jobs] for member in track.members] == [[10, 11], [12]]


def test_a_requeued_job_starts_anew() -> None:
    bench = shared(ticks=1)
    bench.change(2, state=GangJobState.TERMINATING)
    bench.tick()
    bench.change(2, state=GangJobState.RUNNING, start_s=77.0)
    bench.tick()
    assert bench.state(2) is GangState.BUSY


def test_a_job_without_processes_takes_no_slice() -> None:
    bench = shared(ticks=1)
    bench.tell(NodeReport(bench.now_ns, "n0", ended=(2,)))
    assert bench.state(2) is GangState.BUSY
    commands = bench.tell(NodeReport(bench.now_ns, "n1", ended=(2,)))
    assert bench.state(2) is GangState.IDLE
    assert only(commands, AskSlurm)


def test_no_freeze_lasts_longer_than_the_cap() -> None:
    bench = Bench(nodes=1, cores=1, freeze_cap_ns=500 * MS)
    for number in range(1, 7):
        bench.job(number, {"n0": (0,)})
    bench.tick()
    slices = bench.owners(2, 30)
    for number in range(1, 7):
        assert "xxx" not in "".join("x" if number not in owners else "." for owners in slices)


SECOND = 1_000 * MS


def unattended(commands: Iterable[Command]) -> dict[tuple[str, int], list[SliceRow]]:
    found: dict[tuple[str, int], list[SliceRow]] = {}
    for record in only(list(commands), RecordRows):
        for row in record.rows:
            if row.role == "unattended":
                found.setdefault((row.node, row.job), []).append(row)
    return found


def assert_seamless(rows: list[SliceRow], begin_ns: int, end_ns: int) -> None:
    assert rows[0].start_ns == begin_ns
    assert rows[-1].start_ns + rows[-1].length_ns == end_ns
    for one, following in pairwise(rows):
        assert one.start_ns + one.length_ns == following.start_ns


def three_nodes() -> Bench:
    bench = shared(nodes=3, record=True)
    bench.job(3, {"n2": (0, 1)})
    bench.tick()
    return bench


def test_a_silent_node_has_rows_from_its_last_report_until_it_is_back() -> None:
    bench = three_nodes()
    last_ns = bench.scheduler.now_ns
    bench.silent = {"n0"}
    commands = [command for _ in range(24) for command in bench.tick()]
    back_ns = bench.now_ns
    commands += bench.tell(AgentJoined(back_ns, "n0"))
    bench.silent = set()
    commands += bench.tick()
    found = unattended(commands)
    assert set(found) == {("n0", 1), ("n0", 2)}
    for rows in found.values():
        assert_seamless(rows, last_ns, back_ns)
    assert unattended(bench.tick()) == {}


def test_an_agent_that_left_has_rows_until_another_one_comes() -> None:
    bench = three_nodes()
    last_ns = bench.scheduler.now_ns
    commands = bench.tell(AgentLost(bench.now_ns, "n0", "it leaves"))
    back_ns = bench.now_ns + 50 * MS
    commands += bench.tell(AgentJoined(back_ns, "n0"))
    bench.slice += 1
    commands += bench.tick()
    for rows in unattended(commands).values():
        assert_seamless(rows, last_ns, back_ns)


def test_an_agent_that_was_started_again_within_the_lease_has_a_row_of_the_gap() -> None:
    bench = three_nodes()
    last_ns = bench.scheduler.now_ns
    back_ns = bench.now_ns + 100 * MS
    bench.tell(AgentJoined(back_ns, "n0", is_another=True))
    bench.slice += 1
    found = unattended(bench.tick())
    assert set(found) == {("n0", 1), ("n0", 2)}
    for rows in found.values():
        assert_seamless(rows, last_ns, back_ns)
    bench.tell(AgentJoined(bench.now_ns, "n0"))
    assert unattended(bench.tick()) == {}, "the same agent says hello again"


def test_a_controller_that_was_away_leaves_a_gap_from_the_end_of_the_lease() -> None:
    away_ns, start_ns, settings = 30 * SECOND, 1_000 * SECOND, CoreSettings(record=True)
    scheduler = GangScheduler(settings, start_ns, CoreMap({"n0": 2}), away_ns=away_ns)
    bench = shared(nodes=1)
    wall_s = WALL_S + start_ns / SECOND
    views = (bench.jobs[1], replace(bench.jobs[2], start_s=wall_s - 5))
    joined_ns = start_ns + SECOND
    commands = scheduler.handle(AgentJoined(joined_ns, "n0"))
    commands += scheduler.handle(Tick(joined_ns + MS))
    assert unattended(commands) == {}, "no job is known yet"
    commands = scheduler.handle(SlurmSnapshot(joined_ns + 2 * MS, joined_ns, wall_s + 1.002, views))
    commands += scheduler.handle(Tick(joined_ns + 3 * MS))
    found = unattended(commands)
    assert_seamless(found["n0", 1], start_ns - away_ns + settings.lease_ns, joined_ns)
    assert_seamless(found["n0", 2], start_ns - 5 * SECOND, joined_ns)


def test_agents_that_go_by_the_former_plan_leave_no_gap() -> None:
    settings, start_ns = CoreSettings(record=True), 1_000 * SECOND
    scheduler = GangScheduler(settings, start_ns, CoreMap({"n0": 2}), away_ns=SECOND)
    bench = shared(nodes=1)
    joined_ns = start_ns + settings.lease_ns - SECOND
    commands = scheduler.handle(SlurmSnapshot(start_ns + MS, start_ns, WALL_S, tuple(bench.jobs.values())))
    commands += scheduler.handle(Tick(start_ns + 2 * MS))
    commands += scheduler.handle(AgentJoined(joined_ns, "n0"))
    commands += scheduler.handle(Tick(joined_ns + MS))
    assert unattended(commands) == {}
