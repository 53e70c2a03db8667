"""Jobs of several attempts in a replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.metrics.run_metrics import measure
from foundation.records import load_run
from foundation.slurm import SlurmJobState
from submitter.plan.replay_options import Timing
from submitter.replay.replay_progress import ReplayProgress, Wish
from tests.fixtures.replay_world import START, World, events, make_world, rows, write_trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "t.swf", (1, 0, 20, 1), (2, 1, 20, 1))


def allocations(world: World) -> list[dict[str, object]]:
    held = load_run(world.out).allocations
    return [] if held is None else held.to_dicts()


def test_a_running_job_has_start_placement_and_allocation_in_the_run(trace: Path, tmp_path: Path) -> None:
    """A replay that is killed now, and resumed when Slurm has forgotten the job, still knows where it ran."""
    world = make_world(tmp_path, run_s=20.0)
    assert not world.begin(trace).run(lambda now: Wish.DETACH if now.now_s > 5 else Wish.GO_ON)
    run = load_run(world.out)
    assert [row["start_s"] for row in rows(run)] == [pytest.approx(0.0, abs=0.2), pytest.approx(1.0, abs=0.2)]
    assert all(row["placement"] for row in rows(run))
    assert [(held["to_s"], held["why"]) for held in allocations(world)] == [(None, "start")] * 2
    world.sleep(60.0)
    world.slurm.forget_ended()
    assert world.resume().run(world.limit(3600))
    done = load_run(world.out)
    assert [row["state"] for row in rows(done)] == ["COMPLETED"] * 2
    assert all(row["placement"] for row in rows(done))
    assert [held["to_s"] for held in allocations(world)] == [row["end_s"] for row in rows(done)]


def test_each_job_has_one_allocation_and_it_is_the_row_s_own(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    run = world.replay(trace)
    for row, held in zip(rows(run), allocations(world), strict=True):
        assert (held["job"], held["from_s"], held["to_s"]) == (row["job_id"], row["start_s"], row["end_s"])
        assert held["placement"] == row["placement"]


def test_a_requeued_job_has_two_attempts_and_one_row(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=10.0)
    world.at(6.0, lambda: world.slurm.requeue(1, after_s=30.0))
    run = world.replay(trace)
    first, _ = rows(run)
    assert (first["state"], first["exit_code"]) == ("COMPLETED", 0)
    attempts = [held for held in allocations(world) if held["job"] == first["job_id"]]
    assert [held["why"] for held in attempts] == ["start", "requeue"]
    assert [held["from_s"] for held in attempts] == [
        pytest.approx(0.0, abs=0.2),
        pytest.approx(35.5, abs=1.5),
    ]
    assert attempts[0]["to_s"] == pytest.approx(5.5, abs=1.5)
    assert (attempts[1]["from_s"], attempts[1]["to_s"]) == (first["start_s"], first["end_s"])
    assert first["wasted_s"] == pytest.approx(5.5, abs=1.5)
    assert events(run, "requeued")[0]["trace_job"] == 1


def test_a_requeued_job_that_is_cancelled_in_the_queue_keeps_its_first_life(
    trace: Path, tmp_path: Path
) -> None:
    world = make_world(tmp_path, run_s=10.0)
    world.at(6.0, lambda: world.slurm.requeue(1, after_s=300.0))
    world.at(60.0, lambda: world.slurm.cancel([1]))
    first, _ = rows(world.replay(trace))
    assert (first["state"], first["end_s"]) == ("CANCELLED", pytest.approx(59.5, abs=1.5))
    (attempt, _) = allocations(world)
    assert attempt["to_s"] == pytest.approx(5.5, abs=1.5)


def test_a_job_whose_node_failed_may_live_again(trace: Path, tmp_path: Path) -> None:
    """Slurm says NODE_FAIL for a moment, then queues the job once more."""
    world = make_world(tmp_path, run_s=10.0)
    world.stamps_when_killed = False
    world.at(5.0, lambda: world.slurm.end(1, SlurmJobState.NODE_FAIL))
    world.at(8.0, lambda: world.slurm.requeue(1, after_s=20.0))
    first, _ = rows(world.replay(trace))
    assert first["state"] == "COMPLETED"
    assert [held["why"] for held in allocations(world) if held["job"] == 1] == ["start", "requeue"]


def test_a_job_that_ended_and_is_requeued_later_is_followed_again(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=10.0)
    trace = write_trace(tmp_path / "long.swf", (1, 0, 10, 1), (2, 100, 10, 1))
    world.at(50.0, lambda: world.slurm.requeue(1, after_s=5.0))
    run = world.replay(trace)
    first, _ = rows(run)
    assert first["state"] == "COMPLETED"
    assert float(str(first["start_s"])) > 50
    assert events(run, "began again")[0]["after"] == "COMPLETED"
    assert [held["why"] for held in allocations(world) if held["job"] == 1] == ["start", "requeue"]


def test_two_requeues_between_two_sessions_are_three_attempts(trace: Path, tmp_path: Path) -> None:
    """The second one was not seen: its stamps say when it was, and nothing says where."""
    world = make_world(tmp_path, run_s=10.0)
    assert not world.begin(trace).run(lambda now: Wish.DETACH if now.now_s > 4 else Wish.GO_ON)
    world.slurm.requeue(1, after_s=2.0)
    world.sleep(5.0)
    world.slurm.requeue(1, after_s=2.0)
    world.sleep(60.0)
    assert world.resume().run(world.limit(3600))
    run = load_run(world.out)
    first, _ = rows(run)
    assert first["state"] == "COMPLETED"
    held = [one for one in allocations(world) if one["job"] == 1]
    assert [one["why"] for one in held] == ["start", "requeue", "requeue"]
    lengths = [pytest.approx(4.5, abs=1.0), pytest.approx(3.0, abs=0.1), pytest.approx(10.0)]
    assert [float(str(one["to_s"])) - float(str(one["from_s"])) for one in held] == lengths
    assert [one["placement"] is None for one in held] == [False, True, False]
    assert [one["wasted_s"] for one in held[:2]] == lengths[:2]
    assert (held[-1]["wasted_s"], held[-1]["to_s"]) == (None, first["end_s"])
    assert first["wasted_s"] == pytest.approx(7.5, abs=1.0)
    metrics = measure(run)
    assert (metrics.work.requeues, metrics.work.jobs_again, metrics.placement_missing) == (2, 1, 1)
    assert metrics.work.lost_core_s == first["wasted_s"]
    assert metrics.kinds["all"].degradation.max == pytest.approx(0.5)


def test_an_earlier_life_that_no_one_saw_at_all_is_known_by_its_stamps(trace: Path, tmp_path: Path) -> None:
    """The replay was killed before the job began, and Slurm has put it back since."""
    world = make_world(tmp_path, run_s=10.0)
    world.slurm.hold = lambda _: "JobHeldUser"
    assert not world.begin(trace).run(lambda now: Wish.DETACH if now.now_s > 2 else Wish.GO_ON)
    world.slurm.release(1)
    world.sleep(3.0)
    world.slurm.requeue(1, after_s=2.0)
    world.slurm.release(2)
    world.sleep(4.0)
    assert world.resume().run(world.limit(3600))
    held = [one for one in allocations(world) if one["job"] == 1]
    assert [(one["why"], one["placement"] is None) for one in held] == [("start", True), ("requeue", False)]
    assert held[0]["wasted_s"] == pytest.approx(3.0, abs=0.1)


def test_a_life_that_slurm_forgot_is_not_reported_where_the_one_before_was(
    trace: Path, tmp_path: Path
) -> None:
    world = make_world(tmp_path, run_s=10.0)
    assert not world.begin(trace).run(lambda now: Wish.DETACH if now.now_s > 4 else Wish.GO_ON)
    world.slurm.requeue(1, after_s=2.0)
    world.sleep(60.0)
    world.slurm.forget_ended()
    assert world.resume().run(world.limit(3600))
    first, _ = rows(load_run(world.out))
    held = [one for one in allocations(world) if one["job"] == 1]
    assert [(one["why"], one["placement"] is None) for one in held] == [("start", False), ("requeue", True)]
    assert (first["placement"], first["start_s"], first["end_s"]) == (
        None,
        held[1]["from_s"],
        held[1]["to_s"],
    )


def test_a_preemption_is_distinguished_from_a_requeue_where_slurm_says_so(
    trace: Path, tmp_path: Path
) -> None:
    """Slurm says that it preempts a job until the job is back in the queue."""
    world = make_world(tmp_path, run_s=10.0)
    world.at(4.0, lambda: world.slurm.preempt(1))
    world.at(6.0, lambda: world.slurm.requeue(1, after_s=5.0))
    world.at(16.0, lambda: world.slurm.requeue(1, after_s=5.0))
    run = world.replay(trace)
    first, second = rows(run)
    assert (first["preemptions"], second["preemptions"]) == (1, 0)
    causes = [held["why"] for held in allocations(world) if held["job"] == 1]
    assert causes == ["start", "preemption", "requeue"]
    work = measure(run).work
    assert (work.preemptions, work.resumptions, work.requeues) == (1, 1, 1)


def test_a_job_that_slurm_preempts_and_cancels_was_preempted(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=10.0)
    world.at(4.0, lambda: world.slurm.end(1, SlurmJobState.PREEMPTED))
    first, _ = rows(world.replay(trace))
    assert (first["state"], first["preemptions"]) == ("CANCELLED", 1)
    assert [held["why"] for held in allocations(world)] == ["start", "start"]


def test_stamps_that_come_late_are_waited_for(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=10.25)
    world.late_stamps_s = 20.0
    run = world.replay(trace)
    for row in rows(run):
        assert float(str(row["end_s"])) - float(str(row["start_s"])) == pytest.approx(10.25)
        assert row["cpu_s"] == 0.5
    assert events(run, "stamps missing") == []


def test_stamps_that_never_come_are_waited_for_with_a_bound_and_reported(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=10.0, timing=Timing(stamps_s=30.0))
    world.loses_stamps = lambda name: name.endswith("-1")
    session = world.begin(trace)
    assert session.run(world.limit(3600))
    run = load_run(world.out)
    assert [row["state"] for row in rows(run)] == ["COMPLETED"] * 2
    (event,) = events(run, "stamps missing")
    assert event["trace_job"] == 1
    assert any("seen by every node?" in reason for reason in session.reasons())
    assert world.now - START < 60


def test_a_killed_job_is_not_waited_for_long(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=500.0)
    world.stamps_when_killed = False

    def cancel(now: ReplayProgress) -> Wish:
        return Wish.CANCEL if now.now_s > 5 else Wish.GO_ON

    assert world.begin(trace).run(cancel)
    assert {row["state"] for row in rows(load_run(world.out))} == {"CANCELLED"}
    assert world.now - START < 5 + world.timing.killed_s + 10


def test_a_job_cancelled_in_the_queue_is_not_waited_for_at_all(tmp_path: Path) -> None:
    world = make_world(tmp_path, nodes=1, multiplicity=1, run_s=30.0)
    world.at(5.0, lambda: world.slurm.cancel([2]))
    trace = write_trace(tmp_path / "two.swf", (1, 0, 30, 1), (2, 1, 30, 1))
    assert world.begin(trace).run(lambda now: Wish.DETACH if now.now_s > 7 else Wish.GO_ON) is False
    second = rows(load_run(world.out))[1]
    assert (second["state"], second["start_s"]) == ("CANCELLED", None)
