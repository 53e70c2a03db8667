from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from gangd.core import (
    CoreSettings,
    CpuSample,
    GangScheduler,
    MoveEnd,
    NodeReport,
    RecordRows,
    SliceUse,
    SlurmSnapshot,
)
from tests.fixtures.core_bench import QUANTUM, WALL_S, Bench, only, shared


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
    repeated = bench.tell(NodeReport(bench.now_ns, "n0", (use,)))
    assert only(repeated, RecordRows) == []


def test_what_a_gang_that_yields_gets_is_left_over() -> None:
    bench = shared(record=True)
    bench.tick()
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
    """How much later the ends of jobs 1 and 2 are made in some time; Slurm does as it is told."""
    ends = dict.fromkeys((1, 2), WALL_S + limit_s)
    for _ in range(4 * seconds):
        for number in (1, 2):
            bench.jobs[number] = replace(bench.jobs[number], end_s=ends[number])
        for move in only(bench.tick(), MoveEnd):
            assert move.due_s == ends[move.job]
            ends[move.job] = move.end_s
    return {number: end_s - WALL_S - limit_s for number, end_s in ends.items()}


def test_a_job_that_was_planned_to_be_held_and_was_not_is_owed_nothing() -> None:
    bench = shared()
    assert ends_after(bench, 200) == {1: 0, 2: 0}


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
        bench.jobs[number] = replace(bench.jobs[number], end_s=WALL_S + 10_000)
    for _ in range(4 * 60):
        bench.tick()
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
            bench.jobs[number] = replace(bench.jobs[number], end_s=ends[number])
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
        bench.jobs[1] = replace(bench.jobs[1], end_s=ends[1], latest_s=bound_s)
        bench.jobs[2] = replace(bench.jobs[2], end_s=ends[2])
        for move in only(bench.tick(), MoveEnd):
            assert move.end_s > ends[move.job]
            ends[move.job] = move.end_s
    assert ends[1] >= base_s + 90


def test_an_end_that_is_in_a_reservation_already_stays() -> None:
    bench = holding()
    for _ in range(4 * 100):
        bench.jobs[1] = replace(bench.jobs[1], end_s=WALL_S + 120, latest_s=WALL_S + 30)
        assert [move for move in only(bench.tick(), MoveEnd) if move.job == 1] == []


def test_moved_ends_survive_a_restart() -> None:
    bench = holding()
    end_s = WALL_S + 120
    for _ in range(4 * 60):
        bench.jobs[1] = replace(bench.jobs[1], end_s=end_s)
        for move in only(bench.tick(), MoveEnd):
            end_s = move.end_s
    assert end_s > WALL_S + 120
    state = bench.scheduler.limits_state()
    later = GangScheduler(CoreSettings(grace_ns=0), 0, bench.map, state)
    later.handle(SlurmSnapshot(0, 0, WALL_S + 60, (replace(bench.jobs[1], end_s=end_s),)))
    kept = later.limits_state()["1"]
    assert kept["base_s"] == WALL_S + 120
    assert kept["credit_s"] == end_s - (WALL_S + 120)
    assert kept["lost_s"] == state["1"]["lost_s"]


def test_an_end_that_an_operator_set_is_moved_on_from_there() -> None:
    bench = holding()
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
    bench = holding()
    commands = [command for _ in range(4 * 100) for command in bench.tick()]
    assert only(commands, MoveEnd) == []
    assert bench.scheduler.limits_state() == {}
