"""Jobs that never start or leave nothing: last words, what is left."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from foundation.one_line import last_words, launch_fault
from foundation.records import JobEntry, JobRecord, Run, SliceRecord, SliceRole, load_run
from foundation.slurm import JobSnapshot, SlurmJob, SlurmJobState
from osub.cli.replay import _tell
from submitter.follow.stuck_jobs import Hope, StuckJobs, hope_of
from submitter.plan.replay_options import ReplayOptions, Timing
from submitter.plan.replay_plan import PlannedJob
from submitter.replay.replay_progress import HeldTime, ReplayProgress, Wish, time_left_s
from tests.fixtures.replay_world import START, World, events, make_world, planned, rows, write_trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "t.swf", (1, 0, 3, 1), (2, 1, 3, 1), (3, 2, 3, 1))


def pending(reason: str, state: SlurmJobState = SlurmJobState.PENDING, nodes: int = 1) -> SlurmJob:
    return SlurmJob(
        job_id=1, name="j", user="u", uid=0, partition="main", state=state, reason=reason, num_nodes=nodes
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
    world = make_world(tmp_path, timing=ReplayOptions(patience=60.0).timing(look_s=25.0))
    held(world, "JobHeldAdmin")
    session = world.begin(trace)
    seen: list[tuple[float, str | None]] = []

    def watch(now: ReplayProgress) -> Wish:
        if now.blocked and not seen:
            seen.append((now.now_s, now.blocked_by))
        return world.limit(3600)(now)

    assert session.run(watch)
    assert session.reasons() == {"never started: JobHeldAdmin": 1}
    assert seen[0][0] < 10
    assert seen[0][1] == "JobHeldAdmin"
    assert 60 < world.now - START < 80


def test_a_held_job_that_is_released_runs(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    held(world, "JobHeldUser")
    world.at(250.0, lambda: world.slurm.release(2))
    run = world.replay(trace)
    assert states(run) == ["COMPLETED"] * 3
    assert len(events(run, "blocked")) == 1
    assert events(run, "never starts") == []


@pytest.mark.slow
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


UNREADABLE = """\
rrba: cannot read calibration c.json: No such file or directory
srun: error: n1: task 0: Exited with exit code 1
"""

NO_MPI = """\
Fatal error in internal_Init_thread: Other MPI error, error stack:
shm_open failed: Permission denied
Abort(15) on node 0
srun: error: n1: tasks 0-1: Exited with exit code 15

"""


NO_UCX = """\
[1795854978.438506] [n1:29279:0]     ucp_context.c:1381 UCX  WARN  transport 'dc_x' is not available
[1795854978.438531] [n1:29279:0]     ucp_context.c:1643 UCX  ERROR no usable transports/devices (asked dc_x)
Abort(270157199): Fatal error in internal_Init_thread: Other MPI error, error stack:
MPIDI_UCX_init_local(240):  ucx function returned with failed status(ucx_init.c 240 No such device)
srun: error: n1: tasks 0-1: Exited with exit code 15
"""


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (NO_UCX, "MPI_Init failed: UCX: no usable transports/devices (asked dc_x)"),
        (UNREADABLE, "rrba: cannot read calibration c.json: No such file or directory"),
        (NO_MPI, "MPI_Init failed: shm_open failed: Permission denied"),
        ("rrba: own\n" + NO_MPI, "rrba: own"),
        ("slurmstepd-n1: error: killed\ndone\nsrun: error: n1\n", "done"),
        ("slurmstepd: error: killed\n", "slurmstepd: error: killed"),
        (
            '{"app":"rrba","state":"terminated"}\nsrun: error: n1: task 0: 143\n',
            "srun: error: n1: task 0: 143",
        ),
        (
            (
                "step 1\nslurmstepd-n1: error: *** JOB 5 ON n1 CANCELLED AT 2026-11-27T16:21:41 ***\n"
                "MPIDI_OFI_handle_cq_error(593): OFI poll failed\n"
            ),
            "step 1",
        ),
        ("", None),
        ("\n\n", None),
    ],
)
def test_the_jobs_own_words_come_before_the_launchers(
    tmp_path: Path, output: str, message: str | None
) -> None:
    (tmp_path / "1.out").write_text(output)
    assert last_words(tmp_path / "1.out") == message


def test_an_output_that_is_not_there_or_endless_is_no_obstacle(tmp_path: Path) -> None:
    assert last_words(tmp_path / "none.out") is None
    (tmp_path / "1.out").write_bytes(b"\xff" * 1_000_000 + b"\nrrba: the end\n")
    assert last_words(tmp_path / "1.out") == "rrba: the end"


CUT = """\
slurmstepd-n2: error: mpi/pmi2: value not properly terminated in client request
slurmstepd-n2: error: mpi/pmi2: request not begin with 'cmd='
slurmstepd-n2: error: mpi/pmi2: full request is: 8D58A01B
cmd=put kvsname=1.0 key=-allgather-1-0-seg-8/9 value=A223
slurmstepd-n2: error: mpi/pmi2: invalid client request
rrba: MPI_Init did not end within 30.2 s on node n1
"""

WAITS = """\
srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)
slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***
"""


@pytest.mark.parametrize("line", CUT.splitlines()[:2] + CUT.splitlines()[4:5])
def test_a_start_that_slurm_cut_is_recognised_by_each_of_its_lines(tmp_path: Path, line: str) -> None:
    (output := tmp_path / "1.out").write_text(f"begun\n{line}\n" + 100_000 * "0 2\n")
    fault = launch_fault(output)
    assert fault is not None
    assert all(word in fault for word in ("mpi/pmi2", "node n2", "MPIR_CVAR_CH4_NETMOD=ofi"))
    output.write_text(f"it says {line}\n")
    assert launch_fault(output) is None


def test_the_cause_comes_before_the_words_of_its_victims(tmp_path: Path) -> None:
    (output := tmp_path / "1.out").write_text(CUT)
    assert last_words(output) == launch_fault(output)
    output.write_text("rrba: late\nsrun: error: mpi/pmi2: failed to send temp kvs to compute nodes\n")
    assert "suspended while it started" in str(last_words(output))
    output.write_text(WAITS)
    assert "step creation temporarily disabled" in str(last_words(output))
    output.write_text(WAITS.splitlines()[0] + "\nsrun: Step created for job 7\nrrba: no file\n")
    assert last_words(output) == "rrba: no file"


def test_a_job_that_ends_well_after_a_cut_start_has_failed(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    session = world.begin(write_trace(tmp_path / "t.swf", (1, 0, 3, 2), (2, 10, 3, 1), (3, 20, 3, 1)))

    def print_out(job: int, text: str) -> None:
        (world.out / "jobs" / f"{job}.out").write_text(text)

    world.at(1.0, lambda: print_out(1, "".join(CUT.splitlines(keepends=True)[:-1])))
    world.at(11.0, lambda: print_out(2, WAITS))
    assert session.run(world.limit(600))
    states = {row["trace_job"]: (row["state"], row["exit_code"]) for row in rows(load_run(world.out))}
    assert states == {1: ("FAILED", 0), 2: ("COMPLETED", 0), 3: ("COMPLETED", 0)}
    (reason,) = session.reasons()
    assert "mpi/pmi2" in reason
    assert reason in str(session.failure())
    assert (world.out / "jobs" / "1.out").exists()


def test_a_job_that_waits_for_cores_of_its_own_until_its_limit_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = make_world(tmp_path, run_s=3000.0)
    path = write_trace(tmp_path / "t.swf", (1, 0, 3000, 1), (2, 0, 3000, 1))
    session = world.begin(path)

    def print_out() -> None:
        (world.out / "jobs" / "1.out").write_text(WAITS)

    world.at(2.0, print_out)
    for job in (1, 2):
        world.at(50.0, partial(world.slurm.end, job, SlurmJobState.TIMEOUT))
    assert session.run(world.limit(600))
    assert states(load_run(world.out)) == ["TIMEOUT", "TIMEOUT"]
    ((reason, count),) = session.reasons().items()
    assert count == 1, "the other job printed nothing"
    assert reason.startswith("a step waited for cores that the job's other step had")
    assert reason.endswith("give an srun inside srun --overlap, or do without it")
    (event,) = events(load_run(world.out), "launch fault")
    assert (event["trace_job"], event["why"]) == (1, reason)
    _tell(session, path, world.out, None, is_finished=True, as_json=False)
    printed = capsys.readouterr()
    assert "2 jobs in" in printed.out
    assert "(2 TIMEOUT)" in printed.out
    assert printed.err.splitlines() == [
        f"osub: 1 of 2 jobs: {reason}",
        f"osub: {world.out / 'log.jsonl'} has the reason for each job",
    ]
    _tell(session, path, world.out, None, is_finished=True, as_json=True)
    assert json.loads(capsys.readouterr().out.splitlines()[0])["reasons"] == {reason: 1}


def test_a_job_that_hangs_after_a_cut_start_is_ended_long_before_its_limit(tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=3000.0)
    session = world.begin(write_trace(tmp_path / "t.swf", (1, 0, 3000, 2)))

    def print_out() -> None:
        (world.out / "jobs" / "1.out").write_text(CUT)

    world.at(2.0, print_out)
    assert session.run(world.limit(60))
    (row,) = rows(load_run(world.out))
    assert row["state"] == "FAILED"
    (reason,) = session.reasons()
    assert "mpi/pmi2" in reason


def row(job: PlannedJob, start_s: float | None, end_s: float | None = None) -> JobEntry:
    record = JobRecord(
        trace_job=job.trace_job, kind="batch", app="rrba", nodes=1, cores=job.cores,
        due_s=job.due_s, submitted_s=job.due_s, submit_s=job.due_s, dedicated_s=job.dedicated_s,
        start_s=start_s, end_s=end_s, state=None if end_s is None else "COMPLETED",
    )  # fmt: skip
    return JobEntry(record)


@pytest.mark.parametrize("now_s", [0.0, 50.0, 100.0, 450.0, 999.0])
def test_a_queue_takes_as_long_as_all_jobs_in_it(now_s: float) -> None:
    """Ten jobs of 100 s that all came at once, on one core."""
    jobs = [planned(number, 100.0) for number in range(10)]
    began = int(now_s // 100)
    rows = {
        job.trace_job: row(
            job, 100.0 * number if number <= began else None, 100.0 * (number + 1) if number < began else None
        )
        for number, job in enumerate(jobs)
    }
    assert time_left_s(jobs, rows, now_s, cores=1) == pytest.approx(1000 - now_s)


def test_jobs_that_come_slowly_are_waited_for() -> None:
    jobs = [planned(number, 10.0, due_s=100.0 * number) for number in range(10)]
    assert time_left_s(jobs, {}, 0.0, cores=4) == pytest.approx(910)
    rows = {job.trace_job: row(job, job.due_s, job.due_s + 10) for job in jobs[:5]}
    assert time_left_s(jobs, rows, 460.0, cores=4) == pytest.approx(460, rel=0.02)


def test_cores_that_are_shared_are_slower_than_their_number_says() -> None:
    jobs = [planned(number, 100.0) for number in range(4)]
    rows = {job.trace_job: row(job, 0.0, 250.0) for job in jobs[:2]}
    rows |= {job.trace_job: row(job, None) for job in jobs[2:]}
    assert time_left_s(jobs, rows, 250.0, cores=1) == pytest.approx(250)


def test_nothing_is_left_of_a_replay_that_ended() -> None:
    jobs = [planned(1, 100.0)]
    assert time_left_s(jobs, {1: row(jobs[0], 0.0, 300.0)}, 300.0, cores=1) == 0


def test_time_without_an_agent_is_said_once_a_node() -> None:
    def row(
        node: str, job: int, start_s: float, length_s: float, role: SliceRole = "unattended"
    ) -> SliceRecord:
        return SliceRecord(slice=1, start_s=start_s, length_s=length_s, job=job, node=node, role=role)

    held = HeldTime()
    rows = [row("n1", 1, 0.0, 1.0), row("n1", 2, 0.5, 0.5), row("n1", 1, 1.0, 2.0), row("n2", 3, 0.0, 1.0)]
    assert list(held.through(rows)) == rows
    said = held.unattended()
    assert said is not None
    assert said.startswith("no agent of gangd acted on n1 for 3.00 s and on 1 other node for less")
    other = HeldTime()
    assert list(other.through([row("n1", 1, 0.0, 1.0, "held")]))
    assert other.unattended() is None
