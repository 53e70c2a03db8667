"""Jobs that can never start get an end with the reason; those whose reason passes are waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.records import Run
from foundation.slurm import JobSnapshot, SlurmJob, SlurmJobState
from submitter.follow.stuck_jobs import Hope, StuckJobs, hope_of
from submitter.plan.replay_options import ReplayOptions, Timing
from submitter.replay.replay_progress import ReplayProgress, Wish
from tests.fixtures.replay_world import START, World, events, make_world, rows, write_trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "t.swf", (1, 0, 3, 1), (2, 1, 3, 1), (3, 2, 3, 1))


def pending(reason: str, state: SlurmJobState = SlurmJobState.PENDING, nodes: int = 1) -> SlurmJob:
    return SlurmJob(
        job_id=1,
        name="j",
        user="u",
        uid=0,
        partition="main",
        state=state,
        reason=reason,
        num_nodes=nodes,
    )


@pytest.mark.parametrize(
    ("reason", "hope"),
    [
        ("DependencyNeverSatisfied", Hope.NEVER),
        ("PartitionTimeLimit", Hope.NEVER),
        ("PartitionNodeLimit", Hope.NEVER),
        ("BadConstraints", Hope.NEVER),
        ("InvalidAccount", Hope.NEVER),
        ("InvalidQOS", Hope.NEVER),
        ("AccountNotAllowed", Hope.NEVER),
        ("QOSMaxWallDurationPerJobLimit", Hope.NEVER),
        ("AssocMaxNodePerJobLimit", Hope.NEVER),
        ("QOSMaxCpuPerNode", Hope.NEVER),
        ("QOSMinCpuNotSatisfied", Hope.NEVER),
        ("JobHeldAdmin", Hope.OPERATOR),
        ("JobHeldUser", Hope.OPERATOR),
        ("JobHoldMaxRequeue", Hope.OPERATOR),
        ("job_requeued_in_held_state", Hope.OPERATOR),
        ("(launch_failed_requeued_held)", Hope.OPERATOR),
        ("launch failed requeued held", Hope.OPERATOR),
        ("PartitionDown", Hope.OPERATOR),
        ("PartitionInactive", Hope.OPERATOR),
        ("AssociationResourceLimit", Hope.OPERATOR),
        ("ReqNodeNotAvail,_UnavailableNodes:n[1-2]", Hope.NODES),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority", Hope.NODES),
        ("ReqNodeNotAvail,_May_be_reserved_for_other_job", Hope.PASSES),
        ("None", Hope.PASSES),
        ("Priority", Hope.PASSES),
        ("Resources", Hope.PASSES),
        ("BeginTime", Hope.PASSES),
        ("QOSMaxCpuPerUserLimit", Hope.PASSES),
        ("AssocGrpCpuLimit", Hope.PASSES),
        ("QOSMaxJobsPerUserLimit", Hope.PASSES),
        ("AssocMaxJobsLimit", Hope.PASSES),
    ],
)
def test_what_each_reason_leaves_to_hope_for(reason: str, hope: Hope) -> None:
    assert hope_of(pending(reason)) is hope


@pytest.mark.parametrize(
    "state", [SlurmJobState.REQUEUE_HOLD, SlurmJobState.SPECIAL_EXIT, SlurmJobState.RESV_DEL_HOLD]
)
def test_a_job_put_back_on_hold_waits_for_a_user(state: SlurmJobState) -> None:
    assert hope_of(pending("None", state)) is Hope.OPERATOR


def blocked_after(
    job: SlurmJob, looks: int, *, is_idle: bool = False, up: dict[str, list[str]] | None = None
) -> bool:
    """Return whether a job is given up within so many looks of a second each."""
    stuck = StuckJobs(Timing(never_s=10, patience_s=100))
    return any(
        blocked.is_hopeless
        for _ in range(looks)
        for blocked in stuck.look({1: job}, 1.0, is_idle=is_idle, up_nodes=up).values()
    )


def test_a_job_that_breaks_a_limit_is_given_up_soon_and_a_held_one_late() -> None:
    assert blocked_after(pending("PartitionTimeLimit"), 12)
    assert not blocked_after(pending("PartitionTimeLimit"), 9)
    assert not blocked_after(pending("JobHeldUser"), 99)
    assert blocked_after(pending("JobHeldUser"), 102)


def test_a_job_waits_for_nodes_while_enough_of_them_are_up() -> None:
    reason = "ReqNodeNotAvail,_UnavailableNodes:n3"
    up = {"main": ["n1", "n2"]}
    assert not blocked_after(pending(reason, nodes=2), 500, up=up)
    assert blocked_after(pending(reason, nodes=3), 102, up=up)


def test_a_job_that_does_not_start_on_an_idle_cluster_is_given_up_whatever_its_reason() -> None:
    assert blocked_after(pending("AssocGrpCpuLimit"), 102, is_idle=True)
    assert not blocked_after(pending("AssocGrpCpuLimit"), 500)
    assert not blocked_after(pending("Reservation"), 500, is_idle=True)
    assert not blocked_after(pending("BeginTime"), 500, is_idle=True)


def test_a_reason_that_goes_away_and_comes_back_counts_anew() -> None:
    stuck = StuckJobs(Timing(never_s=10, patience_s=100))
    for turn in range(200):
        reason = "JobHeldUser" if turn % 50 else "Priority"
        found = stuck.look({1: pending(reason)}, 1.0, is_idle=False, up_nodes=None)
        assert not any(blocked.is_hopeless for blocked in found.values())


def held(world: World, reason: str) -> None:
    world.slurm.hold = lambda request: reason if request.name.endswith("-2") else None


def states(run: Run) -> list[object]:
    return [row["state"] for row in rows(run)]


def test_a_job_beyond_the_partition_s_limit_ends_with_its_reason_and_the_others_go_on(
    trace: Path, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    held(world, "PartitionTimeLimit")
    run = world.replay(trace)
    assert states(run) == ["COMPLETED", "CANCELLED", "COMPLETED"]
    (event,) = events(run, "never starts")
    assert (event["trace_job"], event["reason"]) == (2, "PartitionTimeLimit")
    assert rows(run)[1]["start_s"] is None
    assert world.now - START < 40


def test_a_held_job_is_reported_at_once_and_given_up_after_the_patience(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, timing=ReplayOptions(patience_s=60.0).timing(look_s=25.0))
    held(world, "JobHeldAdmin")
    session = world.begin(trace)
    told: list[tuple[float, str | None]] = []

    def watch(now: ReplayProgress) -> Wish:
        if now.blocked and not told:
            told.append((now.now_s, now.blocked_by))
        return world.limit(3600)(now)

    assert session.run(watch)
    assert session.reasons() == {"never started: JobHeldAdmin": 1}
    assert told[0][0] < 10
    assert told[0][1] == "JobHeldAdmin"
    assert 60 < world.now - START < 80


def test_a_held_job_that_is_released_runs(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    held(world, "JobHeldUser")
    world.at(250.0, lambda: world.slurm.release(2))
    run = world.replay(trace)
    assert states(run) == ["COMPLETED"] * 3
    assert len(events(run, "blocked")) == 1
    assert events(run, "never starts") == []


def test_time_in_which_slurm_says_nothing_is_no_time_to_wait(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    held(world, "JobHeldUser")

    def reach(*, now: bool) -> None:
        world.slurm.reachable = now

    world.at(100.0, lambda: reach(now=False))
    world.at(1000.0, lambda: reach(now=True))
    world.at(1100.0, lambda: world.slurm.release(2))
    assert states(world.replay(trace)) == ["COMPLETED"] * 3


def test_jobs_whose_nodes_are_gone_end_when_the_nodes_stay_away(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.slurm.down = {"n1", "n2"}
    original = world.slurm.jobs

    def with_reasons() -> JobSnapshot:
        snapshot = original()
        for job in snapshot.jobs:
            if job.state is SlurmJobState.PENDING:
                reason = "ReqNodeNotAvail,_UnavailableNodes:n[1-2]"
                world.slurm._entries[job.job_id].job = type(job)(
                    **{name: getattr(job, name) for name in job.__slots__} | {"reason": reason}
                )
        return original()

    world.slurm.jobs = with_reasons  # type: ignore[method-assign]
    world.slurm.down = set()
    session = world.begin(trace)
    world.slurm.down = {"n1", "n2"}
    assert session.run(world.limit(3600))
    (reason,) = session.reasons()
    assert "0 nodes take jobs, it needs 1" in reason
    assert world.now - START < world.timing.patience_s + 60


def test_a_job_requeued_on_hold_ends(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.at(3.0, lambda: world.slurm.requeue(2, reason="job_requeued_in_held_state"))
    run = world.replay(trace)
    second = rows(run)[1]
    assert second["state"] == "CANCELLED"
    assert second["start_s"] is not None
    assert events(run, "never starts")[0]["reason"] == "job_requeued_in_held_state"
