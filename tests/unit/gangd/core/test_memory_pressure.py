"""Gangs give way where a node is short of memory, in order, one at a time, and never for ever."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangd.core.gang_settings import SECOND, CoreSettings
from gangd.core.memory_pressure import FIRST_WAIT_NS, SETTLE_NS, STALE_NS
from gangd.core.scheduler_events import (
    Alarm,
    HoldMode,
    JobMemory,
    MoveEnd,
    NodeMemory,
    NodeReport,
    Publish,
    Reload,
)
from gangd.core.states import GangState
from tests.fixtures.core_bench import MS, WALL_S, Bench, only
from tests.fixtures.tier import examples

BOUND_KIB = 1000
RULE: dict[str, Any] = {"memory_kib": BOUND_KIB, "freeze_cap_ns": 5 * SECOND, "memory_freeze_ns": 20 * SECOND}


class Short(Bench):
    """A bench whose nodes tell their memory: what is available, and what jobs use."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**(RULE | settings))
        self.used: dict[int, int] = {}

    def begin(self, jobs: int, **more: Any) -> None:
        for number in range(1, jobs + 1):
            self.job(number, start_s=float(number), **more)
        self.tick()

    def tell_memory(self, kib: int, node: str = "n0", stall: float | None = None) -> list[Alarm]:
        memory = NodeMemory(
            kib, stall, 0, tuple(JobMemory(job, used, used) for job, used in self.used.items())
        )
        return only(self.tell(NodeReport(self.now_ns, node, memory=memory)), Alarm)

    def later(self, ns: int) -> None:
        until_ns = self.now_ns + ns
        while self.now_ns < until_ns:
            self.tick()

    @property
    def deferred(self) -> list[int]:
        return [number for number in self.jobs if self.state(number) is GangState.DEFERRED]


def test_memory_counts_for_nothing_unless_asked_for() -> None:
    bench = Short(memory_kib=None)
    bench.begin(2)
    assert bench.tell_memory(0) == []
    assert not bench.deferred


def test_the_youngest_gang_is_suspended_whole_and_an_alarm_says_why() -> None:
    bench = Short()
    bench.begin(3)
    [alarm] = bench.tell_memory(900)
    assert bench.deferred == [3]
    assert (alarm.kind, alarm.job, alarm.nodes, alarm.cleared) == ("memory", 3, ("n0",), False)
    [publish] = only(bench.tick(), Publish)
    [track] = [track for track in publish.tracks if track.name == 3]
    [member] = track.members
    assert member.hold is HoldMode.FREEZE
    assert {node for _, cores in member.jobs for node in cores.nodes} == {0, 1}, "on its other node, too"
    assert track.repeat
    assert track.run[:, 0].tolist() == [False] * 79 + [True], "a slice of 250 ms every 20 s"
    assert 3 not in bench.scheduler.owners(bench.slice + 1)


def test_one_gang_gives_way_at_a_time_and_the_first_never() -> None:
    bench = Short()
    bench.begin(3)
    bench.tell_memory(900)
    assert not bench.tell_memory(900), "the first has not had the time to give way"
    bench.later(SETTLE_NS)
    bench.tell_memory(900)
    assert bench.deferred == [2, 3]
    bench.later(SETTLE_NS)
    assert not bench.tell_memory(10)
    assert bench.state(1) is GangState.BUSY or bench.state(1) is GangState.SOLO


def test_all_but_the_first_give_way_at_once_where_little_is_left() -> None:
    bench = Short()
    bench.begin(4)
    bench.tell_memory(499)
    assert bench.deferred == [2, 3, 4]


def test_a_gang_that_uses_more_than_it_asked_for_gives_way_before_younger_ones() -> None:
    bench = Short()
    bench.begin(3, memory_kib=5000)
    bench.used = {1: 5001, 2: 5000, 3: 100}
    [alarm] = bench.tell_memory(900)
    assert bench.deferred == [1]
    assert "more than it asked for" in alarm.text
    bench.used[1] = 0  # it was paged out, or has freed some: it has shown what its request is worth
    bench.later(SETTLE_NS)
    bench.tell_memory(900)
    assert bench.deferred == [1, 3]


def test_waiting_for_memory_is_a_shortage_too() -> None:
    bench = Short(memory_stall=0.2)
    bench.begin(2)
    bench.tell_memory(10**6, stall=0.2)
    assert not bench.deferred
    bench.tell_memory(10**6, stall=0.21)
    assert bench.deferred == [2]


def test_it_runs_again_where_there_is_memory_and_waits_longer_each_time() -> None:
    bench = Short()
    bench.begin(2)
    waits = []
    for _ in range(3):
        bench.tell_memory(900)
        assert bench.deferred == [2]
        since_ns = bench.now_ns
        while bench.deferred:
            bench.later(250 * MS)
            assert not bench.tell_memory(1249) or bench.deferred, "a quarter more than the bound is wanted"
            ended = bench.tell_memory(1250)
        assert [alarm.cleared for alarm in ended] == [True]
        waits.append(bench.now_ns - since_ns)
    assert [round(wait / FIRST_WAIT_NS) for wait in waits] == [1, 2, 4]
    assert 2 in bench.scheduler.gangs


def test_it_runs_again_as_soon_as_it_is_the_first_in_line() -> None:
    bench = Short()
    bench.begin(2)
    bench.tell_memory(900)
    bench.later(SECOND)
    del bench.jobs[1]
    bench.tick()
    bench.tell_memory(10)
    assert not bench.deferred


def test_a_gang_waits_for_each_node_that_is_short() -> None:
    bench = Short()
    bench.begin(2)
    bench.tell_memory(900, "n0")
    bench.tell_memory(900, "n1")
    bench.later(3 * SECOND)
    bench.tell_memory(5000, "n0")
    assert bench.deferred == [2]
    bench.tell_memory(5000, "n1")
    assert not bench.deferred


def test_what_is_not_told_defers_no_gang() -> None:
    bench = Short()
    bench.begin(2)
    bench.tell_memory(900)
    bench.later(STALE_NS + SECOND)
    assert not bench.deferred


def test_without_the_rule_all_run_again() -> None:
    bench = Short()
    bench.begin(2)
    bench.tell_memory(900)
    bench.tell(Reload(bench.now_ns, CoreSettings(freeze_cap_ns=5 * SECOND)))
    assert not bench.deferred
    [publish] = only(bench.tick(), Publish)
    assert [member.gang for track in publish.tracks for member in track.members] == [1, 2]


def test_opted_out_and_ended_gangs_leave_no_alarm() -> None:
    bench = Short()
    bench.begin(2)
    bench.tell_memory(900)
    del bench.jobs[2]
    ended = only(bench.tick(), Alarm)
    assert [(alarm.subject, alarm.cleared) for alarm in ended] == [("2", True)]
    bench.begin(3, opt_out=True)
    assert not bench.tell_memory(10), "what may not be held is not deferred"


def test_time_without_memory_is_given_back() -> None:
    bench = Short()
    bench.holding = {"n0", "n1"}
    bench.begin(2, end_s=WALL_S + 60)
    bench.tell_memory(900)
    moves: list[MoveEnd] = []
    for _ in range(300):
        moves += only(bench.tick(), MoveEnd)
        bench.tell_memory(900)
    assert max(move.lost_s for move in moves if move.job == 2) > 55, "at most one move a minute"


@examples(60)
@given(st.data())
def test_the_first_in_line_runs_on_every_node_whatever_is_told(data: Any) -> None:
    bench = Short(nodes=3)
    for number in range(1, 6):
        nodes = data.draw(st.lists(st.sampled_from(bench.names), min_size=1, unique=True))
        bench.job(number, dict.fromkeys(nodes, (0, 1)), start_s=float(number), memory_kib=5000)
    bench.tick()
    for _ in range(12):
        if len(bench.jobs) > 1 and data.draw(st.booleans()):
            del bench.jobs[data.draw(st.sampled_from(sorted(bench.jobs)))]
        for job in bench.jobs:
            bench.used[job] = data.draw(st.sampled_from((100, 6000)))
        for name in bench.names:
            here = {job: kib for job, kib in bench.used.items() if job in bench.jobs}
            bench.used = here
            bench.tell_memory(data.draw(st.sampled_from((10, 900, 1500, 9000))), name)
        bench.tick()
        bench.later(data.draw(st.sampled_from((0, SECOND, 3 * SECOND))))
        for name in bench.names:
            bench.tell_memory(900, name)
        assert len(bench.deferred) < len(bench.jobs), "one always runs"
    bench.later(STALE_NS + SECOND)
    assert not bench.deferred
