"""Whatever a submission meets, each job of the trace has one row, one copy that runs, and an end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from foundation.errors import ClusterError, HostError
from foundation.records import load_run
from foundation.slurm import JobSnapshot, SlurmJob, SlurmJobState, SubmitRequest, UnreadableJob
from foundation.slurm.slurm_client import Accounted
from foundation.slurm.slurm_types import SlurmUnreachableError
from submitter.follow.job_rows import Submission
from submitter.replay.replay_loop import WorkerThread
from submitter.replay.replay_progress import ReplayProgress, Wish
from tests.fixtures.fake_slurm import SubmitFault, account_of
from tests.fixtures.replay_world import START, World, events, make_world, rows, write_trace

JOBS = [(1, 0, 3, 1), (2, 1, 3, 1), (3, 2, 3, 1)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "t.swf", *JOBS)


def starts(world: World) -> list[str]:
    """Return the names of the jobs that did work, in the order of their starts."""
    started: list[str] = []
    before = world.slurm.on_start

    def note(job: SlurmJob, request: SubmitRequest) -> bool:
        worked = before(job, request)
        if worked:
            started.append(job.name or "")
        return worked

    world.slurm.on_start = note
    return started


@pytest.mark.parametrize("fault", list(SubmitFault))
def test_every_failure_of_one_submission_leaves_each_job_one_row_and_one_run(
    fault: SubmitFault, trace: Path, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    started = starts(world)
    world.slurm.faults.extend([None, fault])
    found = rows(world.replay(trace))
    refused = fault is SubmitFault.REFUSED
    assert [row["state"] for row in found] == [
        "COMPLETED",
        "REFUSED" if refused else "COMPLETED",
        "COMPLETED",
    ]
    assert len(started) == len(set(started)) == (2 if refused else 3)
    assert [job for job in world.slurm.jobs().jobs if not job.state.is_over] == []


def test_an_answer_that_comes_later_than_the_look_back_makes_no_second_run(
    trace: Path, tmp_path: Path
) -> None:
    """The controller stood still, the job was submitted again, and then the first one was carried out."""
    world = make_world(tmp_path, run_s=40.0)
    started = starts(world)
    world.slurm.faults.append(SubmitFault.LATE)
    world.slurm.late_s = world.timing.look_s + 10
    run = world.replay(trace)
    assert len(started) == len(set(started)) == 3
    assert [row["state"] for row in rows(run)] == ["COMPLETED"] * 3
    copies = [job for job in world.slurm.jobs().jobs if str(job.name).endswith("-1")]
    assert sorted(str(job.state) for job in copies) in (["CANCELLED", "COMPLETED"], ["COMPLETED"] * 2)
    assert len(events(run, "second copy")) == 1


def test_a_second_copy_that_waits_is_cancelled(tmp_path: Path) -> None:
    world = make_world(tmp_path, nodes=1, multiplicity=1, run_s=60.0)
    world.slurm.faults.append(SubmitFault.LATE)
    world.slurm.late_s = world.timing.look_s + 10
    (row,) = rows(world.replay(write_trace(tmp_path / "t.swf", (1, 0, 60, 1))))
    copies = {job.job_id: job.state for job in world.slurm.jobs().jobs}
    assert copies.pop(int(str(row["job_id"]))) is SlurmJobState.COMPLETED
    assert list(copies.values()) == [SlurmJobState.CANCELLED]


def test_other_jobs_do_not_wait_for_one_in_doubt(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.slurm.faults.append(SubmitFault.VANISHED)
    first, second, third = rows(world.replay(trace))
    assert float(str(first["submitted_s"])) >= world.timing.look_s
    assert second["submitted_s"] == pytest.approx(1.0, abs=0.2)
    assert third["submitted_s"] == pytest.approx(2.0, abs=0.2)


def test_silence_does_not_count_as_an_answer(trace: Path, tmp_path: Path) -> None:
    """Slurm says nothing for ten minutes after the doubtful submission; then the job is there."""
    world = make_world(tmp_path)
    world.slurm.faults.append(SubmitFault.LATE)
    world.slurm.late_s = 600.0

    def silence(*, ends: bool) -> None:
        world.slurm.reachable = ends

    world.at(0.6, lambda: silence(ends=False))
    world.at(599.0, lambda: silence(ends=True))
    run = world.replay(trace)
    assert [row["state"] for row in rows(run)] == ["COMPLETED"] * 3
    assert len(world.slurm.jobs().jobs) == 3


@pytest.mark.slow
def test_a_job_named_like_ours_of_another_user_is_not_ours(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.slurm.faults.append(SubmitFault.VANISHED)
    original = world.slurm.jobs

    def with_foreign_job() -> JobSnapshot:
        known = original()
        run_id = load_run(world.out).info.options["run_id"]
        other_job = SlurmJob(
            job_id=777, name=f"osub-{run_id}-1", user="mallory", uid=66_666, partition="main",
            state=SlurmJobState.RUNNING, reason="None", num_nodes=1,
        )  # fmt: skip
        return JobSnapshot((*known.jobs, other_job))

    world.slurm.jobs = with_foreign_job  # type: ignore[method-assign]
    found = rows(world.replay(trace))
    assert [row["state"] for row in found] == ["COMPLETED"] * 3
    assert 777 not in [row["job_id"] for row in found]


def test_an_error_for_every_job_ends_the_replay_and_the_run_can_be_resumed(
    trace: Path, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    submit = world.slurm.submit

    def missing(_: SubmitRequest) -> int:
        raise HostError("sbatch is not installed here; `osub doctor` says what is missing")

    world.slurm.submit = missing  # type: ignore[method-assign, assignment]
    with pytest.raises(HostError, match="sbatch is not installed"):
        world.replay(trace)
    world.slurm.submit = submit  # type: ignore[method-assign]
    assert world.resume().run(world.limit(3600))
    assert [row["state"] for row in rows(load_run(world.out))] == ["COMPLETED"] * 3


def test_a_job_whose_submission_always_fails_is_refused_with_the_reason(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    submit = world.slurm.submit

    def broken(request: SubmitRequest) -> int:
        if request.name.endswith("-2"):
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return submit(request)

    world.slurm.submit = broken  # type: ignore[method-assign]
    run = world.replay(trace)
    assert [row["state"] for row in rows(run)] == ["COMPLETED", "REFUSED", "COMPLETED"]
    (event,) = events(run, "refused")
    assert event["trace_job"] == 2
    assert "UnicodeDecodeError" in str(event["why"])


class Dies:
    """Work that fails in an unforeseen way."""

    def step(self) -> float | None:
        raise MemoryError


class Counts:
    """Work of three steps."""

    steps = 0

    def step(self) -> float | None:
        self.steps += 1
        return None if self.steps == 3 else 0.0


def test_a_thread_that_dies_says_so_and_one_that_is_done_does_not() -> None:
    dead, done = WorkerThread("the submitting thread", Dies()), WorkerThread("w", worker := Counts())
    for thread in (dead, done):
        thread.start()
        thread.join()
    fault = dead.fault()
    assert isinstance(fault, ClusterError)
    assert "the submitting thread failed (MemoryError" in str(fault)
    assert (done.fault(), worker.steps) == (None, 3)


def test_the_death_of_the_submitting_thread_ends_the_replay(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path)
    session = world.begin(trace)
    session._employ = lambda name, worker, promptly: WorkerThread(name, worker, promptly=promptly)
    monkeypatch.setattr("submitter.replay.timed_submission.Submissions.step", lambda _: 1 // 0)
    with pytest.raises(ClusterError, match=r"submitting thread failed \(ZeroDivisionError.*--resume"):
        session.run(world.limit(3600))
    monkeypatch.undo()
    assert world.resume().run(world.limit(7200))
    assert [row["state"] for row in rows(load_run(world.out))] == ["COMPLETED"] * 3


def snapshots(world: World, change: Changes) -> None:
    original = world.slurm.jobs
    world.slurm.jobs = lambda: change(original())  # type: ignore[method-assign]


class Changes:
    """Hides ended jobs from some answers: as unreadable, or altogether."""

    def __init__(self, world: World, pattern: Sequence[str]) -> None:
        self._world, self._pattern, self._looks = world, pattern, 0

    def __call__(self, snapshot: JobSnapshot) -> JobSnapshot:
        if not all(job.state.is_over for job in snapshot.jobs) or len(snapshot.jobs) < len(JOBS):
            return snapshot
        how = self._pattern[min(self._looks, len(self._pattern) - 1)]
        self._looks += 1
        if how == "shown":
            return snapshot
        hidden = tuple(UnreadableJob(job.job_id, "no state") for job in snapshot.jobs)
        return JobSnapshot((), hidden if how == "unreadable" else ())


def test_absences_count_in_a_row_not_in_total(trace: Path, tmp_path: Path) -> None:
    """A job that is left out of every other answer for minutes is there."""
    world = make_world(tmp_path)
    world.loses_stamps = lambda _: True
    flicker = ["gone", "unreadable"] * 60
    snapshots(world, Changes(world, [*flicker, "shown"]))
    run = world.replay(trace)
    assert {row["state"] for row in rows(run)} == {"COMPLETED"}


def test_a_job_that_cannot_be_read_is_not_gone_and_it_is_reported(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.loses_stamps = lambda _: True
    snapshots(world, Changes(world, ["unreadable"] * 200 + ["shown"]))
    run = world.replay(trace)
    assert {row["state"] for row in rows(run)} == {"COMPLETED"}
    assert {event["why"] for event in events(run, "unreadable")} == {"no state"}


def test_a_job_that_slurm_forgot_and_that_left_nothing_is_lost_with_a_reason(
    trace: Path, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    world.loses_stamps = lambda _: True
    snapshots(world, Changes(world, ["gone"]))
    run = world.replay(trace)
    assert {row["state"] for row in rows(run)} == {"LOST"}
    assert all("Slurm has not known it for" in str(event["why"]) for event in events(run, "lost"))
    assert world.now - START > world.timing.gone_s


def test_a_job_that_slurm_forgot_is_not_lost_where_accounting_has_it(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.loses_stamps = lambda _: True
    world.slurm.accounting = account_of
    snapshots(world, Changes(world, ["gone"]))
    run = world.replay(trace)
    assert {row["state"] for row in rows(run)} == {"COMPLETED"}
    assert all(row["start_s"] is not None and row["end_s"] is not None for row in rows(run))
    assert len(events(run, "by accounting")) == len(JOBS)
    assert events(run, "lost") == []
    [reconciled] = events(run, "reconciled")
    assert (reconciled["jobs"], reconciled["disagreements"]) == (len(JOBS), 0)


def test_a_job_that_accounting_does_not_have_either_is_lost(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.loses_stamps = lambda _: True
    world.slurm.accounting = lambda _: None
    snapshots(world, Changes(world, ["gone"]))
    run = world.replay(trace)
    assert {row["state"] for row in rows(run)} == {"LOST"}


def test_where_accounting_says_something_else_that_is_reported(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)

    def differs(job: SlurmJob) -> Accounted | None:
        reported = account_of(job)
        assert reported.end_time is not None
        if job.job_id % 2:
            return replace(reported, end_time=reported.end_time + 60)
        return replace(reported, state=SlurmJobState.TIMEOUT)

    world.slurm.accounting = differs
    session = world.begin(trace)
    assert session.run()
    run = load_run(world.out)
    assert {row["state"] for row in rows(run)} == {"COMPLETED"}
    reported = events(run, "disagreement")
    assert {event["field"] for event in reported} <= {"state", "end_s"}
    assert len(reported) == len(JOBS)
    assert session.remark is not None
    assert f"accounting differs in {len(JOBS)} places" in session.remark


def test_cancelling_reaches_jobs_that_slurm_may_have(trace: Path, tmp_path: Path) -> None:
    """The user cancels while a submission is in doubt; the job comes later, and does nothing."""
    world = make_world(tmp_path, run_s=50.0)
    started = starts(world)
    world.slurm.faults.append(SubmitFault.LATE)
    world.slurm.late_s = 30.0

    def cancel(now: ReplayProgress) -> Wish:
        return Wish.CANCEL if now.now_s > 1.5 else Wish.GO_ON

    assert world.begin(trace).run(cancel)
    run = load_run(world.out)
    assert {row["state"] for row in rows(run)} == {"CANCELLED"}
    world.sleep(60.0)
    assert not any(name.endswith("-1") for name in started)


def test_a_cancellation_that_slurm_did_not_hear_is_said_again(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=500.0)
    cancel, refusals = world.slurm.cancel, iter(range(5))

    def deaf(job_ids: Sequence[int], *, only_pending: bool = False) -> None:
        if next(refusals, None) is not None:
            raise SlurmUnreachableError("Slurm does not answer")
        cancel(job_ids, only_pending=only_pending)

    world.slurm.cancel = deaf  # type: ignore[method-assign, assignment]
    assert world.begin(trace).run(lambda now: Wish.CANCEL if now.now_s > 5 else Wish.GO_ON)
    assert {row["state"] for row in rows(load_run(world.out))} == {"CANCELLED"}
    assert world.now < START + 60


def test_what_is_known_is_recorded_before_a_fault_is_reported(trace: Path, tmp_path: Path) -> None:
    """A job was submitted, then the thread died, both between two looks of the main thread."""
    world = make_world(tmp_path)
    session = world.begin(trace)
    submissions = session._submissions()
    submissions.results.put(Submission(trace_job=1, job_id=9, called=START, returned=START))
    session._drain(submissions)
    session._writer.close()
    assert load_run(world.out).jobs["job_id"].to_list() == [9]
