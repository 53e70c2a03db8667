from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangd.core import (
    AgentJoined,
    AgentLost,
    Alarm,
    AskSlurm,
    Command,
    CoreMap,
    Event,
    Exempt,
    ExemptKind,
    GangScheduler,
    GangState,
    InvalidEvent,
    InvalidSettings,
    JobState,
    JobView,
    MoveEnd,
    NodeReport,
    Publish,
    Record,
    Reload,
    Sample,
    Settings,
    Shutdown,
    SliceUse,
    SlurmSnapshot,
    ThawAll,
    Tick,
)
from gangd.core.document import render
from gangd.core.faults import InvalidTransition
from gangd.core.states import GANG_TABLE, GangInput, transition

MS = 1_000_000
QUANTUM = 250 * MS
WALL_S = 1_000_000.0
REPOSITORY = Path(__file__).parents[3]


class Bench:
    """A scheduler, its clock, and the jobs that Slurm would list."""

    def __init__(self, nodes: int = 2, cores: int = 2, *, joined: bool = True, **settings: Any) -> None:
        settings = {"grace_ns": 0, "freeze_cap_ns": 60_000 * MS} | settings
        self.names = [f"n{index}" for index in range(nodes)]
        self.map = CoreMap(dict.fromkeys(self.names, cores))
        self.scheduler = GangScheduler(Settings(**settings), 0, self.map)
        self.jobs: dict[int, JobView] = {}
        self.slice = 0
        self.silent: set[str] = set()
        if joined:
            for name in self.names:
                self.tell(AgentJoined(0, name))

    @property
    def now_ns(self) -> int:
        return self.scheduler.time.start_ns(self.slice) + MS

    def tell(self, event: Event) -> list[Command]:
        return self.scheduler.handle(event)

    def job(self, number: int, placement: dict[str, Iterable[int]] | None = None, **more: Any) -> None:
        cores = self.map.pack(placement or dict.fromkeys(self.names, (0, 1)))
        self.jobs[number] = JobView(number, more.pop("gang", number), cores, **more)

    def snapshot(self) -> list[Command]:
        wall_s = WALL_S + self.now_ns / 1e9
        return self.tell(SlurmSnapshot(self.now_ns, self.now_ns, wall_s, tuple(self.jobs.values())))

    def tick(self) -> list[Command]:
        """Reports of all agents without samples, Slurm's answer, then the tick; and on to the next slice."""
        commands = []
        for name in self.names:
            if name not in self.silent and self.scheduler.agents.joined(self.map.number(name)):
                commands += self.tell(NodeReport(self.now_ns, name))
        commands += self.snapshot()
        commands += self.tell(Tick(self.now_ns))
        self.slice += 1
        return commands

    def see(
        self, job: int, share: float, tasks: int = 1, nodes: Iterable[str] | None = None
    ) -> list[Command]:
        """All nodes report the demand of a job in the slice before."""
        commands = []
        for name in nodes or self.names:
            sample = Sample(job, int(share * 1000), 0, 1000, 1)
            use = SliceUse(self.slice - 1, 0, 0, (), (sample,))
            commands += self.tell(NodeReport(self.now_ns, name, (use,)))
        return commands

    def state(self, gang: int) -> GangState:
        return self.scheduler.gangs[gang].state

    def owners(self, first: int, slices: int) -> list[set[int]]:
        return [self.scheduler.owners(first + place) for place in range(slices)]


def only(commands: list[Command], kind: type[Any]) -> list[Any]:
    return [command for command in commands if isinstance(command, kind)]


def shared(**settings: Any) -> Bench:
    """Two jobs on all cores, both presumed busy."""
    bench = Bench(**settings)
    bench.job(1)
    bench.job(2)
    return bench


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
            use = SliceUse(bench.slice - 1, 0, 0, (), (Sample(1, 20, 700, 1000, 1),))
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


def test_a_new_job_is_not_held_during_its_launch_grace() -> None:
    bench = Bench(grace_ns=1000 * MS)
    bench.job(1)
    bench.job(2)
    for _ in range(4):
        assert only(bench.tick(), Publish) == []
    assert bench.state(1) is GangState.NEW
    assert only(bench.tick(), Publish)


def test_a_cancelled_job_is_exempt_at_once_and_for_good() -> None:
    bench = shared()
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], state=JobState.TERMINATING)
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.member.gang, exempt.kind, exempt.on) == (2, ExemptKind.TERMINATING, True)
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], state=JobState.RUNNING)
    bench.tick()
    assert bench.state(2) is GangState.TERMINATING
    assert bench.scheduler.owners(20) == {1, 2}
    del bench.jobs[2]
    assert [exempt.on for exempt in only(bench.snapshot(), Exempt)] == [False]


def test_agents_see_a_kill_before_slurm_says_so() -> None:
    bench = shared()
    bench.tick()
    commands = bench.tell(NodeReport(bench.now_ns, "n1", dying=(2,)))
    assert [exempt.kind for exempt in only(commands, Exempt)] == [ExemptKind.TERMINATING]
    assert only(commands, AskSlurm)


def test_a_job_that_slurm_suspended_is_left_alone_until_it_runs() -> None:
    bench = shared()
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], state=JobState.SUSPENDED)
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.kind, exempt.on) == (ExemptKind.SUSPENDED, True)
    bench.tick()
    assert bench.scheduler.owners(20) == {1, 2}
    bench.jobs[2] = replace(bench.jobs[2], state=JobState.RUNNING)
    [exempt] = only(bench.snapshot(), Exempt)
    assert (exempt.kind, exempt.on) == (ExemptKind.SUSPENDED, False)
    assert bench.state(2) is GangState.BUSY


def test_a_strange_freeze_state_stops_slicing_until_slurm_was_asked_again() -> None:
    bench = shared()
    bench.tick()
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


def test_a_strange_freeze_that_turns_out_to_be_slurms_is_left_to_slurm() -> None:
    bench = shared()
    bench.tick()
    bench.slice += 1
    bench.tell(NodeReport(bench.now_ns, "n1", strange=(1,)))
    bench.slice += 1
    bench.jobs[1] = replace(bench.jobs[1], state=JobState.SUSPENDED)
    told = [(exempt.kind, exempt.on) for exempt in only(bench.snapshot(), Exempt)]
    assert told == [(ExemptKind.FREE, False), (ExemptKind.SUSPENDED, True)]
    assert bench.state(1) is GangState.FOREIGN


def test_a_job_with_a_node_without_agent_is_held_nowhere() -> None:
    bench = Bench(joined=False)
    bench.job(1)
    bench.job(2)
    bench.tell(AgentJoined(0, "n0"))
    for _ in range(5):
        assert only(bench.tick(), Publish) == []
    assert bench.state(1) is GangState.FREE
    bench.tell(AgentJoined(bench.now_ns, "n1"))
    assert only(bench.tick(), Publish)


def test_a_silent_agent_frees_its_jobs_everywhere_until_it_is_back() -> None:
    bench = Bench(nodes=3)
    bench.job(1)
    bench.job(2)
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


def test_an_agent_that_says_farewell_is_lost_at_once() -> None:
    bench = shared()
    bench.tick()
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
    bench = shared()
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], state=JobState.TERMINATING)
    bench.tick()
    bench.jobs[2] = replace(bench.jobs[2], state=JobState.RUNNING, start_s=77.0)
    bench.tick()
    assert bench.state(2) is GangState.BUSY


def test_a_job_without_processes_takes_no_slice() -> None:
    bench = shared()
    bench.tick()
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
        held = "".join("x" if number not in owners else "." for owners in slices)
        assert "xxx" not in held


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


def test_rows_tell_what_each_job_did() -> None:
    bench = shared(record=True)
    bench.job(3, {"n0": (0,)}, opt_out=True)
    bench.tick()
    use = SliceUse(0, 42, 7, (2,), (Sample(1, 240_000, 0, 250_000, 1),))
    [record] = only(bench.tell(NodeReport(bench.now_ns, "n0", (use,))), Record)
    assert [(row.job, row.role, row.cpu_us) for row in record.rows] == [
        (1, "run", 240_000),
        (2, "held", None),
        (3, "free", None),
    ]
    assert {(row.start_ns, row.length_ns, row.skew_us, row.freeze_us) for row in record.rows} == {
        (0, QUANTUM, 42, 7)
    }
    repeated = bench.tell(NodeReport(bench.now_ns, "n0", (use,)))
    assert only(repeated, Record) == []


def test_rows_of_a_node_leave_out_components_that_are_elsewhere() -> None:
    bench = Bench(record=True)
    bench.job(10, {"n0": (0,)}, gang=10)
    bench.job(11, {"n1": (0,)}, gang=10)
    bench.job(12, {"n1": (0,)})
    bench.tick()
    [record] = only(bench.tell(NodeReport(bench.now_ns, "n1", (SliceUse(0, 0, 0, (12,), ()),))), Record)
    assert [(row.job, row.role) for row in record.rows] == [(11, "run"), (12, "held")]


def test_the_end_moves_by_the_frozen_time_and_rarely() -> None:
    bench = shared()
    ends = {1: WALL_S + 120, 2: WALL_S + 120}
    moves = []
    for _ in range(4 * 200):
        for number in (1, 2):
            bench.jobs[number] = replace(bench.jobs[number], end_s=ends[number])
        for move in only(bench.tick(), MoveEnd):
            moves.append((bench.now_ns / 1e9, move.job, move.end_s))
            assert move.end_s > ends[move.job]
            ends[move.job] = move.end_s
    assert {job for _, job, _ in moves} == {1, 2}
    for number in (1, 2):
        times = [at for at, job, _ in moves if job == number]
        assert all(later - earlier >= 60 for earlier, later in pairwise(times))
        assert WALL_S + 120 + 100 <= ends[number] <= WALL_S + 120 + 100 + 60


def test_moved_ends_survive_a_restart() -> None:
    bench = shared()
    end_s = WALL_S + 120
    for _ in range(4 * 60):
        bench.jobs[1] = replace(bench.jobs[1], end_s=end_s)
        for move in only(bench.tick(), MoveEnd):
            end_s = move.end_s
    assert end_s > WALL_S + 120
    state = bench.scheduler.limits_state()
    later = GangScheduler(Settings(grace_ns=0), 0, bench.map, state)
    later.handle(SlurmSnapshot(0, 0, WALL_S + 60, (replace(bench.jobs[1], end_s=end_s),)))
    kept = later.limits_state()["1"]
    assert kept["base_s"] == WALL_S + 120
    assert kept["credit_s"] == end_s - (WALL_S + 120)
    assert kept["frozen_s"] == state["1"]["frozen_s"]


def test_an_end_that_an_operator_set_is_moved_on_from_there() -> None:
    bench = shared()
    end_s = WALL_S + 120
    operator = False
    for tick in range(4 * 130):
        if tick == 4 * 62:
            operator, end_s = True, end_s + 1000
        bench.jobs[1] = replace(bench.jobs[1], end_s=end_s)
        for move in only(bench.tick(), MoveEnd):
            assert move.end_s > end_s
            end_s = move.end_s
    assert operator
    assert WALL_S + 1120 + 60 <= end_s <= WALL_S + 1120 + 120


def test_an_unlimited_job_is_left_alone() -> None:
    bench = shared()
    commands = [command for _ in range(4 * 100) for command in bench.tick()]
    assert only(commands, MoveEnd) == []
    assert bench.scheduler.limits_state() == {}


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
        Settings(**wrong)


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
        "run 'python -m gangd.core.document > docs/states.md'"
    )


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
