"""EIBA: periods, busy times, program."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from foundation.errors import UsageError
from tests.fixtures.looks import until
from workloads.eiba.busy_work import KERNELS, STREAM_POINTS, Load, Streaming, consume, make_kernel
from workloads.eiba.eiba_options import parse_options, parse_periods

DEADLINE_S = 60.0


class Launcher:
    """Starts the program and ends what a failed test leaves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, **slurm: str) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "OSUB"))}
        process = subprocess.Popen(
            [sys.executable, "-m", "workloads.eiba", *arguments], cwd=self.folder,
            env=environment | slurm, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process


@pytest.fixture
def eiba(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    for process in launcher.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, json.loads(out) if out else {}, err


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return list(psutil.Process(process.pid).children())
    except psutil.NoSuchProcess:
        return []


@pytest.mark.slow
def test_every_worker_consumes_the_busy_time(eiba: Launcher) -> None:
    code, report, err = finish(eiba("--workers", "2", "4", "0.2", "0.15", "0.05", "0.1"))
    assert (code, err) == (0, "")
    assert (report["app"], report["state"], report["tasks"]) == ("eiba", "completed", 2)
    assert (report["periods"], report["periods_done"]) == (4, 4)
    assert report["busy_asked_s"] == pytest.approx(0.25)
    assert report["idle_asked_s"] == pytest.approx(0.25)
    assert report["busy_s"] >= 0.25
    assert report["busy_wall_s"] >= 0.25
    assert report["idle_s"] >= 0.25
    assert report["cpu_s"] >= 2 * 0.25
    assert report["end_ms"] - report["start_ms"] >= 500
    assert len(report["affinity"]) == 2
    assert report["hosts"] == [socket.gethostname()]


@pytest.mark.slow
def test_report_file_holds_the_printed_line(eiba: Launcher, tmp_path: Path) -> None:
    code, report, _ = finish(eiba("--report", "out.json", "1", "0"))
    assert code == 0
    assert json.loads((tmp_path / "out.json").read_text()) == report
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ([], 2, "no periods given"),
        (["2", "1"], 2, "2 periods announced"),
        (["1", "nan"], 2, "t0 is 'nan'"),
        (["--report", "missing/out.json", "1", "0"], 1, "missing is missing or not writable"),
        (["--report", ".", "1", "0"], 1, "is a folder"),
        (["--traffic", "0.5", "1", "0"], 2, "--traffic needs --memory-mib"),
        (["--traffic", "1.5", "--memory-mib", "1", "1", "0"], 2, "a share from 0 to 1"),
        (["--memory-mib", "-1", "1", "0"], 2, "whole number of MiB"),
        (["--memory-mib", "1000000000", "1", "0"], 1, "smaller --memory-mib"),
        (["--swf", "missing.swf", "1", "0"], 2, "not parts of both"),
        (["--swf", "missing.swf", "--job", "1"], 1, "missing.swf"),
    ],
)
def test_wrong_use_is_one_line_and_an_exit_code(
    eiba: Launcher, arguments: list[str], code: int, complaint: str
) -> None:
    actual, report, err = finish(eiba(*arguments))
    assert actual == code
    assert report == {}
    assert complaint in err
    assert err.startswith("eiba: ")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_memory_is_held_by_every_worker_and_read_in_busy_periods(eiba: Launcher) -> None:
    process = eiba("--workers", "2", "--memory-mib", "64", "--traffic", "0.5", "3", "0.1", "0.1", "600")

    def held() -> bool:
        return [worker.memory_info().rss > 64 * 2**20 for worker in workers_of(process)] == [True, True]

    until(held)
    process.terminate()
    code, report, _ = finish(process)
    assert code == 143
    assert (report["memory_mib"], report["traffic"]) == (64, 0.5)


@pytest.mark.slow
def test_periods_come_from_a_job_of_an_extended_trace(eiba: Launcher, tmp_path: Path) -> None:
    plain = "7 0 -1 1 2 -1 -1 2 60 -1 1 1 1 -1 0 -1 -1 -1\n"
    pattern = "9 5 -1 1 2 -1 -1 2 60 -1 1 1 1 -1 0 -1 -1 -1 -1 -1 -1 0.05 0.02 2 0.03 0.04 0.01\n"
    (tmp_path / "t.swf").write_text(plain + pattern)
    code, report, err = finish(eiba("--swf", "t.swf", "--job", "9"))
    assert (code, err) == (0, "")
    assert (report["periods"], report["periods_done"]) == (5, 5)
    assert report["busy_asked_s"] == pytest.approx(0.07)
    assert report["idle_asked_s"] == pytest.approx(0.08)
    assert "has no busy and idle periods" in finish(eiba("--swf", "t.swf", "--job", "7"))[2]
    assert "has no job 8" in finish(eiba("--swf", "t.swf", "--job", "8"))[2]


@pytest.mark.slow
def test_slurm_says_how_many_workers_there_are(eiba: Launcher) -> None:
    _, report, _ = finish(eiba("1", "0", SLURM_CPUS_ON_NODE="3"))
    assert report["tasks"] == 3


@pytest.mark.slow
def test_several_tasks_on_a_node_are_refused(eiba: Launcher) -> None:
    slurm = {"SLURM_JOB_ID": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "2"}
    code, _, err = finish(eiba("1", "0", **slurm))
    assert code == 2
    assert "--ntasks-per-node=1" in err


@pytest.mark.slow
@pytest.mark.parametrize("period", [["1", "600"], ["2", "0", "600"]])
def test_terminated_job_reports_and_leaves_no_worker(eiba: Launcher, period: list[str]) -> None:
    process = eiba("--workers", "2", *period)
    until(lambda: len(workers_of(process)) == 2)
    workers = workers_of(process)
    # As Slurm does it: every process of the job gets the signal.
    for victim in [*workers, psutil.Process(process.pid)]:
        victim.send_signal(signal.SIGTERM)
    code, report, err = finish(process)
    assert (code, err) == (143, "")
    assert report["state"] == "terminated"
    assert report["periods_done"] < report["periods"]
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.slow
def test_interrupt_ends_the_job_as_a_shell_expects(eiba: Launcher) -> None:
    process = eiba("1", "600")
    until(lambda: workers_of(process))
    process.send_signal(signal.SIGINT)
    code, report, _ = finish(process)
    assert (code, report["state"]) == (130, "terminated")


@pytest.mark.slow
def test_dead_worker_ends_the_job_with_its_name(eiba: Launcher) -> None:
    process = eiba("--workers", "2", "2", "0", "600")
    until(lambda: len(workers_of(process)) == 2)
    victim, other = workers_of(process)
    victim.kill()
    code, report, err = finish(process)
    assert code == 1
    assert "was killed by SIGKILL" in err
    assert err.count("\n") == 1
    assert report["state"] == "failed"
    assert f"(pid {victim.pid}) was killed by SIGKILL" in report["failure"]
    assert not other.is_running()


@pytest.mark.slow
def test_busy_workers_end_when_their_coordinator_is_killed(eiba: Launcher) -> None:
    process = eiba("--workers", "2", "2", "0", "600")
    until(lambda: len(workers_of(process)) == 2)
    workers = workers_of(process)
    until(lambda: all(worker.cpu_times().user > 0.1 for worker in workers))
    process.kill()
    until(lambda: not any(worker.is_running() for worker in workers))


@pytest.mark.slow
def test_idle_job_consumes_no_cpu_time(eiba: Launcher) -> None:
    """While two workers idle, their and their coordinator's CPU clocks stop."""
    process = eiba("--workers", "2", "1", "600")
    until(lambda: len(workers_of(process)) == 2)
    job = [psutil.Process(process.pid), *workers_of(process)]
    until(lambda: all(member.status() == psutil.STATUS_SLEEPING for member in job))

    def consumed() -> int:
        # On-CPU nanoseconds, the first field.
        return sum(int(Path(f"/proc/{member.pid}/schedstat").read_text().split()[0]) for member in job)

    # Members may still be on their way to the wait; once there, twenty looks find nothing added.
    seen: list[int] = []

    def is_idle() -> bool:
        seen.append(consumed())
        return len(seen) >= 20 and len(set(seen[-20:])) == 1

    until(is_idle)


SLURM_PAIR = {"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0", "SLURM_NNODES": "2"}


def meeting_pair(eiba: Launcher, *arguments: str) -> dict[str, subprocess.Popen[str]]:
    """Start a job on two nodes; return its programs by node index once they have met."""
    notice = eiba.folder / "meet"
    first = eiba("--rendezvous", "meet", *arguments, **SLURM_PAIR, SLURM_NODEID="0")
    until(notice.exists)
    second = eiba("--rendezvous", "meet", *arguments, **SLURM_PAIR, SLURM_NODEID="1")
    until(lambda: not notice.exists())
    return {"0": first, "1": second}


@pytest.mark.slow
def test_two_nodes_meet_and_the_first_reports_for_both(eiba: Launcher, tmp_path: Path) -> None:
    arguments = ["--workers", "1", "--rendezvous", "meet", "4", "0.1", "0.1", "0.1", "0.1"]
    second = eiba(*arguments, **SLURM_PAIR, SLURM_NODEID="1", SLURMD_NODENAME="n2")
    first = eiba(*arguments, **SLURM_PAIR, SLURM_NODEID="0", SLURMD_NODENAME="n1")
    code, report, err = finish(first)
    assert (code, err) == (0, "")
    assert (report["nodes"], report["tasks"], report["hosts"]) == (2, 2, ["n1", "n2"])
    assert report["cpu_s"] >= 2 * 0.2
    assert finish(second) == (0, {}, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_slower_node_holds_the_others_at_the_barrier(eiba: Launcher) -> None:
    slow = eiba("--rendezvous", "meet", "2", "0.8", "0", **SLURM_PAIR, SLURM_NODEID="1")
    first = eiba("--rendezvous", "meet", "2", "0", "0", **SLURM_PAIR, SLURM_NODEID="0")
    code, report, _ = finish(first)
    assert code == 0
    assert report["end_ms"] - report["start_ms"] >= 700
    assert finish(slow)[0] == 0


@pytest.mark.slow
def test_rendezvous_file_is_the_users_alone(eiba: Launcher, tmp_path: Path) -> None:
    eiba("--rendezvous", "meet", "1", "0", **SLURM_PAIR, SLURM_NODEID="0")
    until((tmp_path / "meet").exists)
    assert stat.S_IMODE((tmp_path / "meet").stat().st_mode) == 0o600


@pytest.mark.slow
def test_strangers_at_the_rendezvous_are_turned_away(eiba: Launcher, tmp_path: Path) -> None:
    first = eiba("--rendezvous", "meet", "1", "0", **SLURM_PAIR, SLURM_NODEID="0")
    until((tmp_path / "meet").exists)
    notice = json.loads((tmp_path / "meet").read_text())
    with (
        socket.create_connection(("127.0.0.1", notice["port"])) as talker,
        socket.create_connection(("127.0.0.1", notice["port"])),
    ):
        talker.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(64))
        second = eiba("--rendezvous", "meet", "1", "0", **SLURM_PAIR, SLURM_NODEID="1")
        assert (finish(first)[0], finish(second)[0]) == (0, 0)


@pytest.mark.slow
def test_rendezvous_of_another_job_is_not_taken_for_ours(eiba: Launcher, tmp_path: Path) -> None:
    (tmp_path / "meet").write_text(json.dumps({"identity": "40.0.0"}))
    arguments = ["--rendezvous", "meet", "--rendezvous-wait-s", "0.3", "1", "0"]
    code, _, err = finish(eiba(*arguments, **SLURM_PAIR, SLURM_NODEID="1"))
    assert code == 1
    assert "the file is of job 40.0.0" in err


@pytest.mark.slow
def test_missing_node_is_named_after_the_wait(eiba: Launcher) -> None:
    arguments = ["--rendezvous", "meet", "--rendezvous-wait-s", "0.3", "1", "0"]
    code, report, err = finish(eiba(*arguments, **SLURM_PAIR, SLURM_NODEID="0"))
    assert code == 1
    assert "only 1 of 2 nodes came" in err
    assert report["state"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize(("killed", "survivor"), [("0", "1"), ("1", "0")])
def test_lost_node_ends_the_job_on_the_others(eiba: Launcher, killed: str, survivor: str) -> None:
    arguments = ["--workers", "1", "3", "0.1", "0", "600"]
    jobs = meeting_pair(eiba, *arguments)
    jobs[killed].kill()
    code, _, err = finish(jobs[survivor])
    assert code == 1
    assert f"node {killed} is gone" in err


@pytest.mark.slow
@pytest.mark.parametrize(("message", "other"), [("0", "1"), ("1", "0")])
def test_termination_of_one_node_terminates_all(eiba: Launcher, message: str, other: str) -> None:
    arguments = ["--workers", "1", "3", "0.1", "0", "600"]
    jobs = meeting_pair(eiba, *arguments)
    jobs[message].send_signal(signal.SIGTERM)
    reports = {node: finish(job) for node, job in jobs.items()}
    assert reports[message][0] == reports[other][0] == 143
    assert reports["0"][1]["state"] == "terminated"


@pytest.mark.slow
def test_workers_are_bound_to_the_cores_of_the_job_and_the_rest_is_free(eiba: Launcher) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    pinned = {"OSUB_PIN": "1", "OSUB_JOB_CORES": "n1:0", "SLURMD_NODENAME": "n1"}
    code, report, _ = finish(eiba("--workers", "2", "1", "0", **pinned))
    assert code == 0
    assert report["affinity"] == [[cpus[0]], cpus]
    assert report["pinned"] is False
    assert "none for task 1" in report["warnings"][0]


class CountingClock:
    """A CPU clock that advances by what the kernel says it used."""

    def __init__(self, per_call_s: float) -> None:
        self.now_s = 5.0
        self.calls = 0
        self._per_call_s = per_call_s

    def __call__(self) -> float:
        return self.now_s

    def kernel(self) -> None:
        self.calls += 1
        self.now_s += self._per_call_s


@pytest.mark.parametrize(
    ("busy_s", "per_call_s", "most", "calls"),
    [
        (0.9, 0.25, 99, 4),  # it ends with the first kernel that reaches the time
        (0.0, 1.0, 99, 0),
        (1000.0, 0.1, 3, 3),  # a worker without coordinator stops at once
    ],
)
def test_busy_for_a_time(busy_s: float, per_call_s: float, most: int, calls: int) -> None:
    clock = CountingClock(per_call_s)
    busy = consume(busy_s, clock.kernel, lambda: clock.calls < most, clock)
    assert busy == pytest.approx(calls * per_call_s)
    assert clock.calls == calls


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_kernel_computes_for_ever_without_overflow_or_underflow(name: str) -> None:
    kernel = KERNELS[name]()
    with np.errstate(all="raise"):
        for _ in range(500):
            kernel()


@pytest.mark.parametrize("traffic", [0.25, 0.5, 1.0])
def test_memory_gets_its_share_of_the_busy_time(traffic: float) -> None:
    clock = CountingClock(per_call_s=0.0)

    def tick() -> float:
        clock.now_s += 0.001
        return clock.now_s

    mixed = Streaming(clock.kernel, 2**20, traffic, tick)
    for _ in range(400):
        mixed()
    assert mixed.streamed_bytes / (STREAM_POINTS * 8) == pytest.approx(400 * traffic, abs=1)
    assert clock.calls == pytest.approx(400 * (1 - traffic), abs=1)


def test_streaming_goes_round_the_whole_footprint_without_overflow() -> None:
    mixed = Streaming(lambda: None, 3 * STREAM_POINTS * 8, 1.0)
    with np.errstate(all="raise"):
        for _ in range(3 * 101):
            mixed()
    assert set(mixed._memory) == {2.0}


def test_load_without_memory_is_the_kernel_alone() -> None:
    assert not isinstance(make_kernel(Load()), Streaming)
    assert isinstance(make_kernel(Load(memory_mib=1)), Streaming)


def test_periods_alternate_and_the_first_is_idle() -> None:
    periods = parse_periods(["5", "1", "2.5", "3", "0.25", "0"])
    assert periods.seconds == (1.0, 2.5, 3.0, 0.25, 0.0)
    assert (periods.idle_s, periods.busy_s) == (4.0, 2.75)
    assert [periods.is_busy(index) for index in range(5)] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "no periods given"),
        (["0"], "at least 1"),
        (["-1", "2"], "at least 1"),
        (["1.0", "2"], "whole number"),
        (["²", "2"], "whole number"),
        (["2", "1"], "2 periods announced, 1 given"),
        (["1", "1", "2"], "1 periods announced, 2 given"),
        (["1", "-0.5"], "t0 is '-0.5'"),
        (["2", "1", "nan"], "t1 is 'nan'"),
        (["1", "inf"], "t0 is 'inf'"),
        (["1", "long"], "t0 is 'long'"),
    ],
)
def test_wrong_periods_are_refused_with_what_is_wrong(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_periods(words)


def test_negative_period_on_the_command_line_is_a_period_not_an_option() -> None:
    with pytest.raises(UsageError, match="t0 is '-1'"):
        parse_options(["1", "-1"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workers", "0", "1", "0"],
        ["--workers", "two", "1", "0"],
        ["--workers", "100000", "1", "0"],
        ["--rendezvous-wait-s", "0", "1", "0"],
        ["--rendezvous-wait-s", "nan", "1", "0"],
        ["--kernel", "none-such", "1", "0"],
        ["--unknown", "1", "0"],
        ["--work", "1", "1", "0"],
    ],
)
def test_wrong_options_are_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_options(arguments)


def test_options_without_a_word_leave_the_workers_to_slurm() -> None:
    options = parse_options(["2", "0.5", "1"])
    assert options.workers is None
    assert options.report is None
    assert options.periods.seconds == (0.5, 1.0)
