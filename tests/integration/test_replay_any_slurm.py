"""Replays on a Slurm that is set up in other ways, falls silent, puts jobs back and lets some never start."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from deploy.local import LocalCluster, Shape
from foundation.records import Run, load_run
from foundation.slurm import CommandSlurm, JobSnapshot, SubmitRequest
from submitter.plan.replay_options import ReplayOptions, Timing
from submitter.replay.replay_loop import Replay
from submitter.replay.replay_progress import ReplayProgress, Wish
from tests.fixtures.replay_world import events, rows
from tests.integration.conftest import empty_folder, end_cluster
from tests.integration.waiting import REVOKED_S

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

QUICK = Timing(look_s=25.0, gone_s=15.0, stamps_s=20.0, killed_s=3.0, never_s=2.0, patience_s=4.0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes of two cores of two threads, M=2; jobs beyond a limit are held, not refused."""
    with empty_folder() as folder:
        cluster = LocalCluster(folder / "c")
        cluster.up(
            Shape(
                nodes=2, cores=2, threads=2, virtual=True, multiplicity=2,
                settings=("EnforcePartLimits=NO", "MessageTimeout=5", "KillWait=2"),
            )
        )  # fmt: skip
        try:
            yield cluster
        finally:
            end_cluster(cluster)


@dataclass
class Stage:
    """A trace of jobs that sleep, and what is done to the cluster meanwhile."""

    cluster: LocalCluster
    folder: Path
    jobs: Sequence[tuple[float, int, str]]
    plans: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    client: CommandSlurm | None = None

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        self.plans.append((seconds, action))

    def scontrol(self, *words: str) -> str:
        done = subprocess.run(
            ["scontrol", *words],
            env=os.environ | {"SLURM_CONF": str(self.cluster.conf)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def partition(self, **settings: object) -> None:
        self.scontrol("update", "PartitionName=main", *(f"{key}={value}" for key, value in settings.items()))

    def job_of(self, number: int) -> str:
        """Return the Slurm id of a job of the trace."""
        return str(self.session._following.entries[number].job.job_id)

    def is_over(self, number: int) -> bool:
        """Whether the replay has recorded the end of a job of the trace."""
        entry = self.session._following.entries.get(number)
        return entry is not None and entry.job.state is not None

    def is_begun(self, number: int) -> bool:
        """Whether the replay has recorded the beginning of a job of the trace."""
        entry = self.session._following.entries.get(number)
        return entry is not None and entry.job.start_s is not None

    def replay(self, options: ReplayOptions | None = None, timing: Timing = QUICK) -> Run:
        """Replay (due, processors, command) with 1 MiB a processor, to the end."""
        self.folder.mkdir(exist_ok=True)
        trace, apps = self.folder / "t.swf", self.folder / "apps.csv"
        trace.write_text(
            "".join(
                f"{n} {due} -1 5 {procs} -1 -1 {procs} 60 1024 1 1 1 -1 1 -1 -1 -1\n"
                for n, (due, procs, _) in enumerate(self.jobs, start=1)
            )
        )
        lines = (f'{n},sh,"-c ""{command}"""\n' for n, (_, _, command) in enumerate(self.jobs, start=1))
        apps.write_text("trace_job,app,args\n" + "".join(lines))
        options = options or ReplayOptions()
        client = self.client or self.cluster.client()
        self.session = Replay.begin(trace, self.folder / "run", client, options, apps, timing=timing)
        deadline = time.monotonic() + 120

        def watch(now: ReplayProgress) -> Wish:
            assert time.monotonic() < deadline, "no end"
            for plan in [one for one in self.plans if now.now_s >= one[0]]:
                self.plans.remove(plan)
                plan[1]()
            return Wish.GO_ON

        assert self.session.run(watch)
        return load_run(self.folder / "run")


def states(run: Run) -> list[object]:
    return [row["state"] for row in rows(run)]


def number(row: dict[str, object], name: str) -> float:
    return float(str(row[name]))


def cores_of(row: dict[str, Any]) -> list[str]:
    return [held["cores"] for held in row["placement"]]


def test_cores_are_counted_not_threads_and_a_site_s_options_reach_the_jobs(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    stage = Stage(cluster, tmp_path, [(0, 2, "sleep 2"), (0, 4, "sleep 2"), (0, 1, "sleep 2")])
    stage.scontrol(
        "create", "reservation", "ReservationName=ours", "StartTime=now", "Duration=10", "Users=root",
        "Nodes=ALL", "Flags=OVERLAP",
    )  # fmt: skip
    said: list[str] = []
    stage.at(1.0, lambda: said.append(stage.scontrol("show", "job", "-o", stage.job_of(1))))
    try:
        run = stage.replay(
            ReplayOptions(
                account="physics",
                qos="long",
                reservation="ours",
                no_requeue=True,
                sbatch_option=("nice=7", "contiguous"),
            )
        )
    finally:
        stage.scontrol("delete", "ReservationName=ours")
    assert run.info.system == "N2C2"
    assert states(run) == ["COMPLETED"] * 3
    two, four, one = (cores_of(row) for row in rows(run))
    assert (two, four) == (["0-1"], ["0-1", "0-1"])
    assert one in (["0"], ["1"])
    for words in ("Account=physics", "Reservation=ours", "Requeue=0", "Nice=7", "Contiguous=1"):
        assert f" {words} " in said[0]
    assert "mem=2M" in said[0]


def test_jobs_share_cores_on_request(cluster: LocalCluster, tmp_path: Path) -> None:
    """Eight jobs of one core run at once on four cores, because each says that it shares them."""
    stage = Stage(cluster, tmp_path, [(0, 1, "sleep 3")] * 8)
    stage.partition(OverSubscribe="YES:2")
    try:
        run = stage.replay()
    finally:
        stage.partition(OverSubscribe="FORCE:2")
    assert run.info.multiplicity == 2
    assert max(number(row, "start_s") for row in rows(run)) < min(number(row, "end_s") for row in rows(run))


def test_jobs_that_can_never_start_end_with_slurm_s_reason_and_a_requeued_one_has_two_attempts(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    jobs = [(0, 1, "sleep 30"), (2, 1, "true"), (2, 4, "true"), (0, 1, "sleep 3"), (10, 1, "true")]
    stage = Stage(cluster, tmp_path, jobs)

    def hold() -> None:
        """Put jobs back once their first attempt is on record."""
        if not stage.is_begun(4):
            stage.at(0.0, hold)
            return
        stage.scontrol("requeuehold", "State=SpecialExit", stage.job_of(1))
        stage.scontrol("requeue", stage.job_of(4))
        stage.partition(MaxTime="1", MaxNodes="1")
        stage.at(0.0, again)

    def again() -> None:
        """Slurm lets a job that it puts back wait for two minutes, unless it is configured otherwise."""
        job = stage.job_of(4)
        if "JobState=PENDING" in stage.scontrol("show", "job", "-o", job):
            stage.scontrol("update", f"JobId={job}", "TimeLimit=1", f"StartTime=now+{REVOKED_S:.0f}")
        else:
            stage.at(0.0, again)

    def lift() -> None:
        """Lift the limits once those that they kept from starting are given up."""
        if stage.is_over(2) and stage.is_over(3):
            stage.partition(MaxTime="UNLIMITED", MaxNodes="UNLIMITED")
            stage.at(0.0, shut)
        else:
            stage.at(0.0, lift)

    def shut() -> None:
        """Let the last job find the partition down, and the one with two attempts find it up."""
        if stage.is_over(4) or "JobState=RUNNING" in stage.scontrol("show", "job", "-o", stage.job_of(4)):
            stage.partition(State="DOWN")
        else:
            stage.at(0.0, shut)

    stage.at(1.0, hold)
    stage.at(4.7, lift)
    try:
        run = stage.replay(
            ReplayOptions(sbatch_option=("requeue",)),
            timing=Timing(killed_s=3.0, never_s=0.9, patience_s=3.0),
        )
    finally:
        stage.partition(MaxTime="UNLIMITED", MaxNodes="UNLIMITED", State="UP")
    assert states(run) == ["CANCELLED", "CANCELLED", "CANCELLED", "COMPLETED", "CANCELLED"]
    why = {event["trace_job"]: str(event["reason"]) for event in events(run, "never starts")}
    assert why[1].replace(" ", "_") == "job_requeued_in_held_state"
    assert (why[2], why[3], why[5]) == ("PartitionTimeLimit", "PartitionNodeLimit", "PartitionDown")
    twice = rows(run)[3]
    assert run.allocations is not None
    attempts = [held for held in run.allocations.to_dicts() if held["job"] == twice["job_id"]]
    assert [held["why"] for held in attempts] == ["start", "requeue"]
    assert attempts[0]["to_s"] <= attempts[1]["from_s"] == twice["start_s"]
    assert attempts[1]["to_s"] == twice["end_s"]
    assert number(twice, "end_s") - number(twice, "start_s") == pytest.approx(3.0, abs=1.0)
    assert number(twice, "wasted_s") > 0


def silenced(stage: Stage, begin_s: float, length_s: float) -> None:
    """Stop this cluster's slurmctld for a while."""
    (daemon,) = (one for one in stage.cluster.state().daemons if one.role == "slurmctld")
    stage.at(begin_s, lambda: os.kill(daemon.pid, signal.SIGSTOP))
    stage.at(begin_s + length_s, lambda: os.kill(daemon.pid, signal.SIGCONT))


def only_once(stage: Stage, run: Run, marks: Path) -> None:
    """Each job did its work once, and nothing of the run is left in Slurm."""
    assert states(run) == ["COMPLETED"] * len(stage.jobs)
    assert sorted(marks.read_text().split()) == [str(n) for n in range(1, len(stage.jobs) + 1)]
    prefix = f"osub-{run.info.options['run_id']}-"
    ours = [job for job in stage.cluster.client().jobs().jobs if (job.name or "").startswith(prefix)]
    assert all(job.state.is_over for job in ours)


def marking(marks: Path, last_s: float) -> list[tuple[float, int, str]]:
    """Return jobs that note when they do their work; the second is submitted into the silence."""
    # Slurm takes its time with a job whose end falls into the silence.
    return [
        (due_s, 1, f"echo {n} >> {marks}; sleep {7 - n}") for n, due_s in enumerate((0.0, 1.2, last_s), 1)
    ]


class Blind(CommandSlurm):
    """A client that does not see the second job until it has submitted it twice."""

    tries_of_second = 0

    def submit(self, request: SubmitRequest) -> int:
        self.tries_of_second += request.name.endswith("-2")
        return super().submit(request)

    def jobs(self) -> JobSnapshot:
        snapshot = super().jobs()
        seen = [job for job in snapshot.jobs if self.tries_of_second > 1 or not str(job.name).endswith("-2")]
        return replace(snapshot, jobs=tuple(seen))


def test_a_silent_controller_loses_no_job_and_runs_none_twice(cluster: LocalCluster, tmp_path: Path) -> None:
    """What was submitted into the silence is submitted again, and then Slurm has it twice."""
    marks = tmp_path / "marks"
    stage = Stage(cluster, tmp_path / "s", marking(marks, 5.0))
    stage.client = Blind(cluster.conf, timeout_s=2.0, tries=1)
    silenced(stage, 1.0, 4.0)
    run = stage.replay(timing=Timing(look_s=1.0, killed_s=3.0))
    only_once(stage, run, marks)
    assert events(run, "second copy")


@pytest.mark.long
def test_a_silence_of_half_a_minute_doubles_no_submission(cluster: LocalCluster, tmp_path: Path) -> None:
    """With the look-back of a real replay not even Slurm has a second copy."""
    marks = tmp_path / "marks"
    stage = Stage(cluster, tmp_path / "s", marking(marks, 31.0))
    silenced(stage, 1.0, 30.0)
    run = stage.replay(timing=Timing())
    only_once(stage, run, marks)
    assert events(run, "second copy") == []
