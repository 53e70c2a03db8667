"""The slice record says for each node when no agent acted: silence, another agent, an absent controller."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from gangd.core import (
    AgentJoined,
    AgentLost,
    Command,
    CoreMap,
    CoreSettings,
    GangScheduler,
    RecordRows,
    SliceRow,
    SlurmSnapshot,
    Tick,
)
from tests.fixtures.core_bench import MS, WALL_S, Bench, only

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
    bench = Bench(nodes=3, record=True)
    bench.job(1)
    bench.job(2)
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
    cores = CoreMap({"n0": 2})
    scheduler = GangScheduler(settings, start_ns, cores, away_ns=away_ns)
    bench = Bench(nodes=1)
    bench.job(1)
    bench.job(2)
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
    bench = Bench(nodes=1)
    bench.job(1)
    bench.job(2)
    joined_ns = start_ns + settings.lease_ns - SECOND
    commands = scheduler.handle(SlurmSnapshot(start_ns + MS, start_ns, WALL_S, tuple(bench.jobs.values())))
    commands += scheduler.handle(Tick(start_ns + 2 * MS))
    commands += scheduler.handle(AgentJoined(joined_ns, "n0"))
    commands += scheduler.handle(Tick(joined_ns + MS))
    assert unattended(commands) == {}
