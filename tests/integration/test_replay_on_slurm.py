"""Replays on a real Slurm: real applications, kills at any instant, the command line's errors."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from analysis.metrics import host_use
from analysis.metrics.run_metrics import measure
from deploy.local import LocalCluster, Shape
from foundation.mpi_start import START_S
from foundation.records import Run, load_run
from osub.cli.main import run as run_osub
from tests.fixtures.exchange import osub as call_osub
from tests.fixtures.looks import until
from tests.fixtures.swf_jobs import write_jobs
from tests.integration.waiting import REVOKED_S

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]


def swf(path: Path, *jobs: tuple[int, float, float, int, int]) -> Path:
    """Write jobs of (number, submit, run, procs, queue)."""
    return write_jobs(path, [(n, at, run, procs, 60, 1, q) for n, at, run, procs, q in jobs])


def replay_of(trace: Path, cluster: LocalCluster, out: Path, *more: str) -> list[str]:
    return ["replay", str(trace), "--cluster", str(cluster.folder), "--out", str(out), *more]


def words(trace: Path, cluster: LocalCluster, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "osub.cli.main", *replay_of(trace, cluster, out, *more)]


def osub(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)


def states(run: Run) -> list[str]:
    return [str(state) for state in run.jobs.sort("trace_job")["state"]]


@pytest.mark.quick
def test_both_applications_run_across_nodes_and_report(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    trace = swf(tmp_path / "t.swf", (1, 0, 2, 2, 1), (2, 0.5, 3, 1, 0), (3, 1, 2, 2, 0), (4, 1, 1, 1, 1))
    done = osub(*words(trace, shared_cluster, tmp_path / "run", "--json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["finished"] is True
    run = load_run(tmp_path / "run")
    assert states(run) == ["COMPLETED"] * 4
    rows = {row["trace_job"]: row for row in run.jobs.to_dicts()}
    assert [rows[n]["app"] for n in (1, 2, 3, 4)] == ["rrba", "eiba", "eiba", "rrba"]
    assert all(row["cpu_s"] is not None for row in rows.values())
    assert len(rows[1]["placement"]) == 2
    assert all(row["end_s"] - row["start_s"] >= 0.9 * row["dedicated_s"] for row in rows.values())
    for number in (1, 4):  # rrba tells its pace
        assert rows[number]["steps"] > 0
        assert rows[number]["step_s"] > 0
        assert 0 < rows[number]["steps_cpu_s"] <= rows[number]["cpu_s"]
    assert run.host is not None
    own_s, used_s = run.host["own_s"].sum(), run.host["used_s"].sum()
    assert run.host["own_s"].null_count() == 0
    # Of what the jobs used, what ended unseen between two looks may be missing.
    assert 0.5 * float(run.jobs["cpu_s"].sum()) <= float(own_s) <= 1.1 * float(used_s) + 1.0


def test_a_network_of_the_users_choice_that_does_not_work_fails_soon(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    trace = swf(tmp_path / "t.swf", (1, 0, 2, 2, 1), (2, 0, 2, 1, 1))
    chosen = ("--export", "MPIR_CVAR_CH4_NETMOD=ucx", "--export", "UCX_TLS=dc_x")  # a device that is not here
    done = osub(*words(trace, shared_cluster, tmp_path / "run", *chosen))
    run = load_run(tmp_path / "run")
    assert states(run) == ["FAILED", "COMPLETED"], "one rank needs no network"
    failed = run.jobs.sort("trace_job").to_dicts()[0]
    ran_s = failed["end_s"] - failed["start_s"]
    assert ran_s < START_S, "ended by its own fault, before the deadline of MPI_Init"
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("osub: 1 of 2 jobs FAILED"))
    assert "UCX" in said, done.stderr


def test_a_replay_on_a_host_that_others_use_is_repeated_and_the_earlier_one_kept(
    shared_cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (apps := tmp_path / "apps.csv").write_text("trace_job,app,args\n1,sleep,1\n")
    monkeypatch.setattr("osub.cli.replay.host_use", partial(host_use, most_taken=-1.0))
    out = tmp_path / "run"
    trace = swf(tmp_path / "t.swf", (1, 0, 1, 1, 1))
    assert (
        run_osub(replay_of(trace, shared_cluster, out, "--apps", str(apps), "--repeat", "1", "--json")) == 0
    )
    said = capfd.readouterr()
    assert json.loads(said.out)["run"] == str(out)
    assert "run.unfit-1 now, and the replay begins again" in said.err
    first, second = load_run(tmp_path / "run.unfit-1"), load_run(out)
    assert first.info.options["run_id"] != second.info.options["run_id"]
    assert states(first) == states(second) == ["COMPLETED"]


def test_killed_at_random_instants_no_job_is_lost_or_doubled(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    rng = random.Random(7)
    trace = swf(tmp_path / "t.swf", *((n, n * 0.15, 0.2, 1, 1) for n in range(1, 31)))
    apps = tmp_path / "apps.csv"
    apps.write_text("trace_job,app,args\n" + "".join(f"{n},sleep,0.2\n" for n in range(1, 31)))
    out, kills = tmp_path / "run", 0
    command = words(trace, shared_cluster, out, "--apps", str(apps))
    while True:
        replay = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if kills < 5:
            # The instant is drawn from when the RUN is there, so that each kill meets a replay at work.
            until((out / "run.json").exists, 60, "RUN is there")
            time.sleep(rng.uniform(0.6, 1.6))
            replay.kill()
        _, stderr = replay.communicate(timeout=120)
        if replay.returncode != -signal.SIGKILL:
            assert replay.returncode == 0, stderr
            break
        kills += 1
        command = words(trace, shared_cluster, out, "--resume")
    assert kills >= 3
    run = load_run(out)
    assert run.complete
    assert run.jobs.sort("trace_job")["trace_job"].to_list() == list(range(1, 31))
    assert states(run) == ["COMPLETED"] * 30
    assert run.host is not None
    assert (run.host["at_s"].diff().drop_nulls() > 0).all()
    assert "bf_interval=1," in (run.info.slurm_config or {})["SchedulerParameters"]
    run_id = run.info.options["run_id"]
    jobs = shared_cluster.client().jobs().jobs
    names = [job.name for job in jobs if job.name and job.name.startswith(f"osub-{run_id}-")]
    assert len(names) == len(set(names)) == 30


def test_each_life_of_a_requeued_job_is_recorded_although_the_replay_was_killed_meanwhile(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    """The second attempt passes while no replay runs; the third begins after the replay was resumed."""
    trace = swf(tmp_path / "t.swf", (1, 0, 8, 1, 1), (2, 0.5, 1, 1, 1))
    (apps := tmp_path / "apps.csv").write_text("trace_job,app,args\n1,sleep,8\n2,sleep,1\n")
    out = tmp_path / "run"
    more = ("--apps", str(apps), "--sbatch-option", "requeue")
    replay = subprocess.Popen(words(trace, shared_cluster, out, *more), stdout=subprocess.DEVNULL)

    def begun(attempt: int) -> bool:
        return (out / "jobs" / f"1.life{attempt}.start").exists()

    def seen() -> bool:
        return (out / "run.json").exists() and load_run(out).allocations is not None

    until(seen, 60, "the first attempt is in the RUN")
    replay.kill()
    replay.wait(timeout=30)
    number = load_run(out).jobs.row(by_predicate=pl.col("trace_job") == 1, named=True)["job_id"]
    for again in (1, 2):
        requeue(shared_cluster, number)
        if again == 2:
            resumed = subprocess.Popen(
                words(trace, shared_cluster, out, "--resume"), stdout=subprocess.DEVNULL
            )
        start_now(shared_cluster, number)
        until(partial(begun, again), 60, f"attempt {again} has begun")
    assert resumed.wait(timeout=120) == 0
    run = load_run(out)
    assert states(run) == ["COMPLETED"] * 2
    row = run.jobs.row(0, named=True)
    assert run.allocations is not None
    attempts = run.allocations.filter(pl.col("job") == number).to_dicts()
    assert [attempt["why"] for attempt in attempts] == ["start", "requeue", "requeue"]
    assert [attempt["placement"] is None for attempt in attempts] == [False, True, False]
    for attempt, following in pairwise(attempts):
        assert attempt["from_s"] < attempt["to_s"] < following["from_s"]
        assert attempt["wasted_s"] == pytest.approx(attempt["to_s"] - attempt["from_s"], abs=0.002)
    assert (attempts[2]["from_s"], attempts[2]["to_s"]) == (row["start_s"], row["end_s"])
    assert 7.9 <= row["end_s"] - row["start_s"] < 60
    metrics = measure(run)
    assert (metrics.work.requeues, metrics.work.jobs_again) == (2, 1)
    assert metrics.work.lost_core_s == pytest.approx(row["wasted_s"], abs=0.01)
    assert metrics.kinds["all"].first_wait_s.max < metrics.kinds["all"].wait_s.max  # type: ignore[operator]


def test_a_life_after_a_preemption_with_grace_is_distinguished_from_one_after_a_requeue(
    make_cluster: Callable[[Shape], LocalCluster], tmp_path: Path
) -> None:
    """Slurm says that it preempts a job while its grace lasts, for one of a partition of a higher tier."""
    settings = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE")
    cluster = make_cluster(Shape(nodes=1, cores=1, virtual=True, multiplicity=1, settings=settings))
    scontrol(cluster, "create", "PartitionName=high", "Nodes=ALL", "PriorityTier=10", "PreemptMode=OFF")
    scontrol(cluster, "update", "PartitionName=main", "PreemptMode=REQUEUE", "GraceTime=4")
    trace = swf(tmp_path / "t.swf", (1, 0, 5, 1, 1))
    apps, mark = tmp_path / "apps.csv", tmp_path / "mark"
    apps.write_text(f'trace_job,app,args\n1,sh,"-c ""test -e {mark} || {{ touch {mark}; sleep 60; }}"""\n')
    out = tmp_path / "run"
    more = ("--apps", str(apps), "--partition", "main", "--sbatch-option", "requeue")
    replay = subprocess.Popen(words(trace, cluster, out, *more), stdout=subprocess.DEVNULL)
    until(mark.exists, 60, "the job runs")
    subprocess.run(
        ["sbatch", "-n1", "--mem=1", "-p", "high", "-o", "/dev/null"],
        env=os.environ | {"SLURM_CONF": str(cluster.conf)},
        input="#!/bin/sh\ntrue\n",
        text=True,
        check=True,
        capture_output=True,
    )
    number = load_run(out).jobs["job_id"].item()
    in_queue = partial(scontrol, cluster, "show", "job", "-o", str(number))
    until(lambda: "JobState=PENDING" in in_queue(), 60, "the job is back in the queue")
    start_now(cluster, number)
    assert replay.wait(timeout=120) == 0
    run = load_run(out)
    assert run.allocations is not None
    assert run.allocations["why"].to_list() == ["start", "preemption"]
    assert (run.jobs["preemptions"].item(), states(run)) == (1, ["COMPLETED"])
    work = measure(run).work
    assert (work.preemptions, work.resumptions, work.requeues) == (1, 1, 0)


def scontrol(cluster: LocalCluster, *arguments: str) -> str:
    return subprocess.run(
        ["scontrol", *arguments],
        env=os.environ | {"SLURM_CONF": str(cluster.conf)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def requeue(cluster: LocalCluster, job_id: int) -> None:
    scontrol(cluster, "requeue", str(job_id))
    until(
        lambda: "JobState=PENDING" in scontrol(cluster, "show", "job", "-o", str(job_id)),
        30,
        "the job is back in the queue",
    )


def start_now(cluster: LocalCluster, job_id: int) -> None:
    """Let a job start that Slurm has put back: by itself it waits for two minutes."""
    time.sleep(REVOKED_S)
    scontrol(cluster, "update", f"JobId={job_id}", "StartTime=now")


def begun_replay(trace: Path, cluster: LocalCluster, out: Path, stdin: int) -> subprocess.Popen[str]:
    """Begin a replay, and return when its first job runs."""
    replay = subprocess.Popen(
        words(trace, cluster, out), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: (out / "jobs" / "1.start").exists(), 60, "first job runs")
    return replay


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_detaches_where_no_one_can_answer(
    number: signal.Signals, shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    trace, out = swf(tmp_path / "t.swf", (1, 0, 2, 1, 1), (2, 3, 1, 1, 1)), tmp_path / "run"
    with begun_replay(trace, shared_cluster, out, subprocess.DEVNULL) as replay:
        replay.send_signal(number)
        stdout, _ = replay.communicate(timeout=30)
    assert replay.returncode == 128 + number
    assert "--resume" in stdout
    assert osub(*words(trace, shared_cluster, out, "--resume")).returncode == 0
    assert states(load_run(out)) == ["COMPLETED"] * 2


def test_ctrl_c_cancels_all_jobs_where_that_is_the_answer(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    trace, out = swf(tmp_path / "t.swf", (1, 0, 60, 1, 1), (2, 1, 60, 1, 1)), tmp_path / "run"
    ours, terminal = os.openpty()
    try:
        with begun_replay(trace, shared_cluster, out, terminal) as replay:
            replay.send_signal(signal.SIGINT)
            os.write(ours, b"cancel\n")
            _, stderr = replay.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(terminal)
    assert replay.returncode == 130, stderr
    assert states(load_run(out)) == ["CANCELLED"] * 2


def test_the_caller_s_environment_changes_nothing(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    """Slurm's own times count for a job that its wrapper left without stamps; no variable may move them."""
    trace = swf(tmp_path / "t.swf", (1, 0, 1, 1, 1), (2, 0, 2, 1, 1))
    apps = tmp_path / "apps.csv"
    apps.write_text('trace_job,app,args\n1,sh,"-c ""sleep 1; kill -9 $PPID"""\n2,sleep,2\n')
    odd = {
        "SLURM_TIME_FORMAT": "relative", "TZ": "Pacific/Apia", "LC_ALL": "tr_TR.UTF-8", "LANG": "C",
        "SQUEUE_FORMAT": "%j", "SQUEUE_STATES": "PENDING", "SCANCEL_STATE": "PENDING",
        "SBATCH_PARTITION": "none", "SBATCH_TIMELIMIT": "0:01", "SBATCH_HOLD": "1",
        "SLURM_CLUSTERS": "elsewhere",
    }  # fmt: skip
    done = subprocess.run(
        words(trace, shared_cluster, tmp_path / "run", "--apps", str(apps), "--json"),
        env=os.environ | odd, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "run")
    assert states(run) == ["FAILED", "COMPLETED"]
    killed, well = run.jobs.sort("trace_job").to_dicts()
    for row in (killed, well):
        assert 0 <= row["start_s"] < row["end_s"] < 150
        assert row["placement"] is not None
    assert 1.9 <= well["end_s"] - well["start_s"] < 60
    assert killed["exit_code"] == 128 + signal.SIGKILL


def one_line_error(err: str, complaint: str) -> None:
    assert err.startswith("osub: ")
    assert err.count("\n") == 1
    assert complaint in err


def refused(code: int, complaint: str, *arguments: str) -> None:
    """Call a command that says in one line why it does nothing."""
    said = call_osub(*arguments)
    assert said.code == code, said.err
    one_line_error(said.err, complaint)


def test_every_bad_input_is_one_line_and_leaves_nothing(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    good, out = swf(tmp_path / "good.swf", (1, 0, 1, 1, 1)), tmp_path / "run"
    big = swf(tmp_path / "big.swf", (1, 0, 1, 3, 1), (2, 0, 1, 3, 1))
    refused(1, "--oversize", *replay_of(big, shared_cluster, out))
    refused(1, "no.swf", *replay_of(tmp_path / "no.swf", shared_cluster, out))
    refused(2, "--speedup", *replay_of(good, shared_cluster, out, "--speedup", "0"))
    refused(2, "--bogus", *replay_of(good, shared_cluster, out, "--bogus"))
    refused(2, "it has main", *replay_of(good, shared_cluster, out, "--partition", "gpu"))
    refused(1, "option '--bogus'", *replay_of(good, shared_cluster, out, "--sbatch-option", "bogus"))
    refused(1, "reservation is invalid", *replay_of(good, shared_cluster, out, "--reservation", "x"))
    refused(1, "slurm.conf", *replay_of(good, LocalCluster(tmp_path), out))
    refused(2, "no RUN", *replay_of(good, shared_cluster, out, "--resume"))
    assert not out.exists()
    out.mkdir()
    (out / "mine").touch()
    refused(1, str(out), *replay_of(good, shared_cluster, out))
    assert [path.name for path in out.iterdir()] == ["mine"]


def test_an_unwritable_folder_and_a_full_disk_are_one_line(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    good = swf(tmp_path / "good.swf", (1, 0, 1, 1, 1))
    refused(1, "/proc/run", *replay_of(good, shared_cluster, Path("/proc/run")))
    if os.geteuid() != 0:
        pytest.skip("a full disk is made with a tmpfs, which needs root")
    (disk := tmp_path / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        (disk / "filler").write_bytes(b"x" * (60 << 10))
        done = osub(*words(good, shared_cluster, disk / "run"))
        assert done.returncode == 1, done.stderr
        one_line_error(done.stderr, "disk")
        assert [path.name for path in disk.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_an_unreachable_slurm_is_one_line(tmp_path: Path) -> None:
    good = swf(tmp_path / "good.swf", (1, 0, 1, 1, 1))
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nMessageTimeout=1\n"
        "NodeName=localhost\nPartitionName=p Nodes=localhost\nAuthInfo=socket=/nonexistent/munge\n"
    )
    refused(1, "Slurm", *replay_of(good, LocalCluster(tmp_path), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_dangerous_applications_never_meet_on_a_core(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    """``x`` and ``y`` harm each other, ``z`` harms itself; a kill in between changes nothing."""
    kinds = {number: "xyzf"[number % 4] for number in range(1, 17)}
    # On a busy host jobs of two seconds may never meet.
    run_s = {number: 5 if kind in "xy" else 2 for number, kind in kinds.items()}
    trace = swf(tmp_path / "t.swf", *((n, n * 0.1, run_s[n], 1, 1) for n in kinds))
    apps = tmp_path / "apps.csv"
    lines = [f"{n},sleep,{run_s[n]},{kind}" for n, kind in kinds.items()]
    apps.write_text("trace_job,app,args,application\n" + "\n".join(lines) + "\n")
    pairs = tmp_path / "pairs.csv"
    dangerous = {"xy", "yx", "zz"}
    pairs.write_text(
        "victim,opponent,e_v\n"
        + "".join(f"{a},{b},{0.9 if a + b in dangerous else 0.5}\n" for a in "xyzf" for b in "xyzf")
    )
    out = tmp_path / "run"
    command = words(trace, shared_cluster, out, "--apps", str(apps), "--pairing", str(pairs))
    replay = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until((out / "run.json").exists, 60, "RUN is there")
    time.sleep(1.0)
    replay.kill()
    replay.communicate(timeout=60)
    done = osub(*words(trace, shared_cluster, out, "--resume"))
    assert done.returncode == 0, done.stderr
    run = load_run(out)
    assert states(run) == ["COMPLETED"] * len(kinds)
    rows = run.jobs.to_dicts()
    met = set()
    for row in rows:
        for other in rows:
            if row["trace_job"] == other["trace_job"]:
                continue
            # Slurm stamps whole seconds; the script's own stamps are in milliseconds.
            together = row["start_s"] < other["end_s"] and other["start_s"] < row["end_s"]
            nodes = {place["node"] for place in row["placement"]} & {
                place["node"] for place in other["placement"]
            }
            if together and nodes:
                met.add(kinds[row["trace_job"]] + kinds[other["trace_job"]])
    assert not met & {"xy", "yx"}
    assert not {pair for pair in met if "z" in pair}, "z shares with no other"
    assert {"xx", "yy"} & met, "cores are shared, or nothing was tried"
    assert any(event["kind"] == "pairing" for event in run.events())
