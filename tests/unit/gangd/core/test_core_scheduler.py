from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangd.core import (
    AgentJoined,
    AgentLost,
    AgentState,
    CoreMap,
    CoreSettings,
    CpuSample,
    Event,
    GangState,
    InvalidEvent,
    InvalidSettings,
    NodeReport,
    Publish,
    Reload,
    Shutdown,
    SliceUse,
    SlurmSnapshot,
    ThawAll,
    Tick,
)
from gangd.core.cores import InvalidTransition
from gangd.core.states import GANG_TABLE, GangInput, transition
from gangd.core.states_document import render
from tests.fixtures.core_bench import MS, Bench, only, shared

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
    bench = shared()
    bench.tick()
    bench.tick()
    assert bench.scheduler.at_rest
    bench.job(3)
    bench.snapshot()
    assert not bench.scheduler.at_rest
    for _ in range(4):
        bench.tick()
    assert bench.scheduler.at_rest
    before = [bench.owners(number, 1)[0] for number in range(bench.slice + 2, bench.slice + 40)]
    bench.slice += 30  # no tick comes for so long
    assert not only(bench.tick(), Publish)
    assert [bench.owners(number, 1)[0] for number in range(bench.slice + 2, bench.slice + 9)] == before[31:38]


def test_a_change_begins_beyond_what_is_final() -> None:
    bench = shared()
    for _ in range(10):
        bench.tick()
    del bench.jobs[2]
    [publish] = only(bench.tick(), Publish)
    assert publish.first_slice == 12
    assert publish.drop == (1,)
    assert publish.tracks == ()


def test_only_the_group_that_changed_is_published_again() -> None:
    bench = Bench(nodes=4)
    for number in range(1, 9):
        bench.job(number, {f"n{(number - 1) // 2}": (0, 1)})
    [publish] = only(bench.tick(), Publish)
    assert [track.name for track in publish.tracks] == [1, 3, 5, 7]
    del bench.jobs[6]
    [publish] = only(bench.tick(), Publish)
    assert publish.tracks == ()
    assert publish.drop == (5,)
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
    for _ in range(40):
        bench.tick()
    slices = bench.owners(40, 40)
    assert sum(1 in owners for owners in slices) == 30
    assert sum(2 in owners for owners in slices) == 10


def test_an_idle_job_takes_no_slice_and_is_not_held() -> None:
    bench = shared()
    bench.tick()
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
    bench = shared()
    bench.tick()
    for _ in range(30):
        bench.tick()
        bench.see(1, 0.0, nodes=["n0"])
        bench.see(1, 0.9, nodes=["n1"])
    assert bench.state(1) is GangState.BUSY


def test_one_busy_sample_among_idle_ones_keeps_a_job_busy() -> None:
    bench = shared()
    bench.tick()
    for round_ in range(40):
        bench.tick()
        bench.see(1, 0.9 if round_ % 4 == 0 else 0.0)
    assert bench.state(1) is GangState.BUSY


def test_run_queue_delay_counts_as_demand() -> None:
    bench = shared()
    bench.tick()
    for _ in range(12):
        bench.tick()
        for name in bench.names:
            use = SliceUse(bench.slice - 1, 0, 0, (), (CpuSample(1, 20, 700, 1000, 1),))
            bench.tell(NodeReport(bench.now_ns, name, (use,)))
    assert bench.state(1) is GangState.BUSY


def idle_beside_busy() -> Bench:
    bench = shared()
    bench.tick()
    while bench.state(1) is not GangState.IDLE:
        bench.tick()
        bench.see(1, 0.0)
    for _ in range(3):
        bench.tick()
        bench.see(1, 0.0)
    return bench


def test_a_job_that_wakes_is_not_held_and_first_in_line() -> None:
    bench = idle_beside_busy()
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
    bench = idle_beside_busy()
    bench.see(1, 0.8)
    commands = bench.tick()
    for _ in range(5):
        bench.see(1, 0.0)
        commands += bench.tick()
    assert bench.state(1) is GangState.IDLE
    assert only(commands, Publish) == []


def test_a_short_burst_is_forgotten_sooner_than_a_long_history() -> None:
    bench = idle_beside_busy()
    for _ in range(3):
        bench.tick()
        bench.see(1, 0.9)
    assert bench.state(1) is GangState.BUSY
    for _ in range(2):
        bench.tick()
        bench.see(1, 0.0)
    assert bench.state(1) is GangState.IDLE


def test_a_new_quantum_counts_from_the_first_slice_that_is_not_final() -> None:
    bench = shared()
    bench.tick()
    bench.tell(Reload(bench.now_ns, replace(bench.scheduler.settings, quantum_ns=100 * MS)))
    [publish] = only(bench.tick(), Publish)
    assert publish.rebase
    assert publish.first_slice == 3
    time = bench.scheduler.time
    assert [time.start_ns(number) // MS for number in range(1, 6)] == [250, 500, 750, 850, 950]
    assert time.slice_at(800 * MS) == 3
    assert [track.first_slice for track in publish.tracks] == [3]


def test_who_keeps_to_a_longer_lease_is_not_lost_when_it_is_made_shorter() -> None:
    bench = shared(lease_ns=10_000 * MS)
    bench.tick()
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
    bench = shared()
    bench.tick()
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
    bench = shared()
    for _ in range(5):
        bench.tick()
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
    assert packed.numbers().tolist() == [1, 2, 4]
    assert packed.nodes == (0, 1)
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
