"""Starts and placements are recorded as they are seen; a requeue is another life; stamps may come late."""

from __future__ import annotations

from pathlib import Path

import pytest

from osub.records import load_run
from osub.slurm import JobState
from submitter.replay import Progress, Wish
from submitter.timing import Timing
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


def test_a_requeued_job_has_two_lives_and_one_row(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=10.0)
    world.at(6.0, lambda: world.slurm.requeue(1, after_s=30.0))
    run = world.replay(trace)
    first, _ = rows(run)
    assert (first["state"], first["exit_code"]) == ("COMPLETED", 0)
    lives = [held for held in allocations(world) if held["job"] == first["job_id"]]
    assert [held["why"] for held in lives] == ["start", "requeue"]
    assert [held["from_s"] for held in lives] == [pytest.approx(0.0, abs=0.2), pytest.approx(35.5, abs=1.5)]
    assert lives[0]["to_s"] == pytest.approx(5.5, abs=1.5)
    assert (lives[1]["from_s"], lives[1]["to_s"]) == (first["start_s"], first["end_s"])
    assert first["wasted_s"] == pytest.approx(5.5, abs=1.5)
    assert events(run, "requeued")[0]["trace_job"] == 1


def test_a_requeued_job_that_is_cancelled_in_the_queue_keeps_its_first_life(
    trace: Path, tmp_path: Path
) -> None:
    world = make_world(tmp_path, run_s=10.0)
    world.at(6.0, lambda: world.slurm.requeue(1, after_s=300.0))
    world.at(60.0, lambda: world.slurm.cancel([1]))
    first, _ = rows(world.replay(trace))
    assert first["state"] == "CANCELLED"
    assert first["end_s"] == pytest.approx(59.5, abs=1.5)
    (life, _) = allocations(world)
    assert life["to_s"] == pytest.approx(5.5, abs=1.5)


def test_a_job_whose_node_failed_may_live_again(trace: Path, tmp_path: Path) -> None:
    """Slurm says NODE_FAIL for a moment, then queues the job once more."""
    world = make_world(tmp_path, run_s=10.0)
    world.stamps_when_killed = False
    world.at(5.0, lambda: world.slurm.end(1, JobState.NODE_FAIL))
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


def test_two_requeues_between_two_sessions_are_not_lost(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=10.0)
    assert not world.begin(trace).run(lambda now: Wish.DETACH if now.now_s > 4 else Wish.GO_ON)
    world.slurm.requeue(1, after_s=2.0)
    world.sleep(5.0)
    world.slurm.requeue(1, after_s=2.0)
    world.sleep(60.0)
    assert world.resume().run(world.limit(3600))
    first, _ = rows(load_run(world.out))
    assert first["state"] == "COMPLETED"
    held = [one for one in allocations(world) if one["job"] == 1]
    assert [one["why"] for one in held] == ["start", "requeue"]
    assert held[-1]["to_s"] == first["end_s"]


def test_stamps_that_come_late_are_waited_for(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=10.25)
    world.late_stamps_s = 20.0
    run = world.replay(trace)
    for row in rows(run):
        assert float(str(row["end_s"])) - float(str(row["start_s"])) == pytest.approx(10.25)
        assert row["cpu_s"] == 0.5
    assert events(run, "stamps missing") == []


def test_stamps_that_never_come_are_waited_for_with_a_bound_and_told(trace: Path, tmp_path: Path) -> None:
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

    def cancel(now: Progress) -> Wish:
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
