"""The program as a job runs it: real MPI ranks on this host, real signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fixtures.looks import until
from workloads.rrba.cuts import parse_grid
from workloads.rrba.ranks.shared_segments import discard_segments
from workloads.rrba.steps.calibrations import Calibration, key_of, load_calibrations, store_calibration

pytestmark = pytest.mark.slow

DEADLINE_S = 90.0
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
SMALL = ("--app", "jacobi", "--grid", "8")


def first_of_all() -> list[str]:
    """Return what comes before a command so that no ordinary process takes its core; empty without rights."""
    words = ["chrt", "--fifo", "1"]
    may = shutil.which(words[0]) and subprocess.run([*words, "true"], capture_output=True).returncode == 0
    return words if may else []


class Launcher:
    """Starts the program on some ranks and ends what a failed test leaves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def __call__(
        self, *arguments: str, ranks: int | None = None, before: Sequence[str] = (), **variables: str
    ) -> subprocess.Popen[str]:
        command = [*before, sys.executable, "-m", "workloads.rrba", *arguments]
        if ranks is not None:
            if MPIEXEC is None:
                pytest.skip("no mpiexec in this environment; install the package mpich")
            command = [MPIEXEC, "-n", str(ranks), *command]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "OSUB", "PMI"))}
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment | variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process


@pytest.fixture
def rrba(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    for process in launcher.started:
        if process.poll() is None:
            launched = psutil.Process(process.pid)
            members = [*launched.children(recursive=True), launched]
            for member in members:
                member.terminate()
            for member in psutil.wait_procs(members, timeout=2)[1]:
                member.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    out, err = process.communicate(timeout=DEADLINE_S)
    reports = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert len(reports) <= 1
    return process.returncode, reports[0] if reports else {}, err


def test_rank_alone_needs_no_launcher(rrba: Launcher, tmp_path: Path) -> None:
    code, report, err = finish(rrba(*SMALL, "--steps", "40", "--report", "out.json"))
    assert (code, err) == (0, "")
    assert (report["app"], report["kernel"], report["state"]) == ("rrba", "jacobi", "completed")
    assert (report["tasks"], report["steps"], report["steps_asked"]) == (1, 40, 40)
    assert report["grid"] == "8x8x8"
    assert report["deviation"] < 1e-12
    assert report["residual"] > 0
    assert report["cpu_s"] > 0
    assert report["affinity"] == [sorted(os.sched_getaffinity(0))]
    assert json.loads((tmp_path / "out.json").read_text()) == report


@pytest.mark.parametrize("app", ["jacobi", "bt", "sp", "lu", "mg", "cg", "ft", "ep"])
def test_a_rank_alone_runs_where_there_is_no_mpi(rrba: Launcher, app: str, tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('there is none')")
    size = SMALL if app == "jacobi" else ("--app", app, "--class", "S")
    code, report, err = finish(rrba(*size, "--steps", "3", PYTHONPATH=str(tmp_path)))
    assert (code, report["tasks"], report["steps"], err) == (0, 1, 3, "")
    code, _, err = finish(rrba(*size, "--steps", "3", PYTHONPATH=str(tmp_path), PMI_RANK="0"))
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("rrba: no MPI library: there is none")


def test_an_environment_that_leaves_ucx_no_transport_harms_only_who_chose_ucx(rrba: Launcher) -> None:
    code, report, err = finish(rrba(*SMALL, "--steps", "3", ranks=2, UCX_TLS="dc_x"))
    assert (code, report["tasks"], err) == (0, 2, "")
    chosen = {"UCX_TLS": "dc_x", "MPIR_CVAR_CH4_NETMOD": "ucx"}
    process = rrba(*SMALL, "--steps", "3", ranks=2, **chosen)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode != 0
    assert "UCX" in out + err


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_the_grid_and_report_once(rrba: Launcher, ranks: int) -> None:
    alone = finish(rrba(*SMALL, "--steps", "20"))[1]
    code, report, err = finish(rrba(*SMALL, "--steps", "20", ranks=ranks))
    assert (code, err) == (0, "")
    assert (report["tasks"], report["steps"]) == (ranks, 20)
    assert report["residual"] == pytest.approx(alone["residual"], rel=1e-12)
    assert report["deviation"] < 1e-12
    assert report["wait_s"] >= report["skew_max_s"] > 0
    assert len(report["affinity"]) == ranks


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--app", "none-such", "--steps", "1"], 2, "there are bt, cg, ep, ft, jacobi, lu, mg, sp"),
        (["--app", "jacobi", "--grid", "2", "--steps", "1"], 2, "3 ranks for 2 planes"),
        ([*SMALL, "--steps", "1", "--report", "missing/out"], 1, "missing is missing or not writable"),
        ([*SMALL, "--target-s", "1", "--calibration", "missing"], 1, "cannot read calibration missing"),
        (["--app", "jacobi", "--grid", "1000000x1000x1000", "--steps", "1"], 1, "MiB are available"),
    ],
)
def test_what_cannot_be_done_is_said_once_by_all_ranks(
    rrba: Launcher, arguments: list[str], code: int, complaint: str
) -> None:
    actual, report, err = finish(rrba(*arguments, ranks=3))
    assert actual == code
    assert report == {}
    ours = [line for line in err.splitlines() if line.startswith("rrba: ")]
    assert len(ours) == 1
    assert complaint in ours[0]
    assert "Traceback" not in err


def test_tasks_that_mpi_does_not_see_are_noticed(rrba: Launcher) -> None:
    code, _, err = finish(rrba(*SMALL, "--steps", "1", SLURM_STEP_NUM_TASKS="4"))
    assert code == 2
    assert "--mpi=pmi2" in err


def test_target_within_the_start_up_makes_one_step_and_says_so(rrba: Launcher) -> None:
    code, report, _ = finish(rrba(*SMALL, "--target-s", "0.001"))
    assert code == 0
    assert (report["steps"], report["clipped"], report["calibration"]) == (1, True, None)


@pytest.mark.parametrize("ranks", [1, 2])
def test_target_without_calibration_is_reached_by_measured_steps(rrba: Launcher, ranks: int) -> None:
    def attempt() -> bool:
        code, report, _ = finish(rrba(*SMALL, "--target-s", "0.8", ranks=ranks))
        assert code == 0
        assert report["clipped"] is False
        assert report["calibration"] in {"clean steps", "CPU time"}
        assert report["steps"] == report["steps_asked"] > 1
        # What is not start-up and shutdown is filled, whatever that left of the target here. Where the cores
        # are taken away while steps are measured, those that were made may be too many already.
        return float(report["steps"] * report["step_s"]) < 0.8

    until(attempt, DEADLINE_S)


def test_stored_calibration_alone_decides_the_steps(rrba: Launcher, tmp_path: Path) -> None:
    key = key_of("jacobi", parse_grid("8"), 2, 1)
    store_calibration(tmp_path / "steps.json", Calibration(key, 0.01, 0.5, 100, 1))
    code, report, _ = finish(rrba(*SMALL, "--target-s", "1.5", "--calibration", "steps.json", ranks=2))
    assert code == 0
    assert (report["steps"], report["calibration"]) == (100, "steps.json")


def test_calibration_of_another_kind_is_not_used_and_that_is_said(rrba: Launcher, tmp_path: Path) -> None:
    key = key_of("jacobi", parse_grid("8"), 2, 1)
    store_calibration(tmp_path / "steps.json", Calibration(key, 0.01, 0.5, 100, 1))
    code, report, _ = finish(rrba(*SMALL, "--target-s", "0.5", "--calibration", "steps.json"))
    assert code == 0
    assert report["calibration"] in {"clean steps", "CPU time"}
    assert "no calibration of jacobi 8x8x8 on 1 rank" in report["warnings"][0]


@pytest.mark.alone
def test_calibration_is_stored_once_the_core_is_its_own(rrba: Launcher, tmp_path: Path) -> None:
    def attempt() -> bool:
        # Short, so that a busy host has a core to spare for as long; as root it has one whatever else runs.
        arguments = ["--calibrate-s", "0.02", "--calibration", "steps.json"]
        code, report, err = finish(rrba(*SMALL, *arguments, before=first_of_all()))
        if code != 0:
            # Another process of this host had the core for a moment.
            assert "nothing calibrated" in err
            assert not (tmp_path / "steps.json").exists()
            return False
        (entry,) = load_calibrations(tmp_path / "steps.json")
        assert entry.key == key_of("jacobi", parse_grid("8"), 1, 1)
        assert report["step_s"] == pytest.approx(entry.step_s, abs=1e-6)
        assert entry.overhead_s > 0
        return True

    until(attempt, DEADLINE_S)


def test_calibration_on_a_shared_core_is_refused(rrba: Launcher, tmp_path: Path) -> None:
    before = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    if shutil.which("taskset") is None:
        pytest.skip("no taskset; install util-linux")
    spinner = rrba(*SMALL, "--target-s", "600", before=before)
    # Only while it computes does it take half of the core.
    until(lambda: psutil.Process(spinner.pid).cpu_times().user > 0.5, DEADLINE_S)
    arguments = ["--calibrate-s", "0.5", "--calibration", "steps.json"]
    code, report, err = finish(rrba(*SMALL, *arguments, before=before))
    assert code == 1
    assert report == {}
    assert "nothing calibrated" in err
    assert not (tmp_path / "steps.json").exists()


def ranks_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the ranks that have begun to compute."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if "workloads.rrba" in child.cmdline() and child.cpu_times().user > 0.5:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def segments_of(rank: psutil.Process) -> set[Path]:
    """Return the shared memory of the message-passing library that a rank has mapped."""
    return {Path(each.path) for each in rank.memory_maps() if each.path.startswith("/dev/shm/mpich_shm_")}


def test_terminated_rank_alone_reports(rrba: Launcher) -> None:
    process = rrba(*SMALL, "--steps", "1000000000")
    until(lambda: psutil.Process(process.pid).cpu_times().user > 0.5, DEADLINE_S)
    assert not segments_of(psutil.Process(process.pid))
    process.send_signal(signal.SIGTERM)
    code, report, err = finish(process)
    assert (code, err) == (143, "")
    assert report["state"] == "terminated"
    assert 0 < report["steps"] < report["steps_asked"]
    assert report["cpu_s"] > 0


def test_job_with_a_held_rank_can_be_terminated(rrba: Launcher, tmp_path: Path) -> None:
    """The first rank polls for the held one in the message-passing library, and yet it answers."""
    process = rrba(*SMALL, "--steps", "1000000000", "--report", "out.json", ranks=2)
    until(lambda: len(ranks_of(process)) == 2, DEADLINE_S)
    ranks = sorted(ranks_of(process), key=lambda rank: int(rank.environ()["PMI_RANK"]))
    segments = segments_of(ranks[0]) | segments_of(ranks[1])
    assert segments, "another library than MPICH, or another name"
    ranks[1].suspend()
    ranks[0].send_signal(signal.SIGTERM)
    until((tmp_path / "out.json").exists, DEADLINE_S)
    report = json.loads((tmp_path / "out.json").read_text())
    assert (report["state"], report["tasks"]) == ("terminated", 2)
    assert 0 < report["steps"] < report["steps_asked"]
    assert finish(process)[0] != 0
    until(lambda: not any(rank.is_running() for rank in ranks), DEADLINE_S)
    assert not any(segment.exists() for segment in segments)


def test_only_mapped_segments_are_removed_and_missing_ones_are_no_error(tmp_path: Path) -> None:
    names = ("mpich_shm_a_0", "812:0:0", "mpich_shm_b_0", "libmpi.so")
    mapped, provider, other, library = (tmp_path / name for name in names)
    for path in (mapped, provider, other, library):
        path.touch()
    (maps := tmp_path / "maps").write_text(
        f"7f00-7f10 rw-s 00000000 00:1a 7 {mapped}\n"
        f"7f10-7f20 rw-s 00100000 00:1a 7 {mapped}\n"
        f"7f18-7f20 rw-s 00000000 00:1a 6 {provider}\n"
        f"7f20-7f30 rw-s 00000000 00:1a 8 {tmp_path}/mpich_shm_c_0 (deleted)\n"
        f"7f30-7f40 r-xp 00000000 00:1a 9 {library}\n"
        "7f40-7f50 rw-p 00000000 00:00 0 \n"
    )
    discard_segments(maps, tmp_path)
    assert [path.exists() for path in (mapped, provider, other, library)] == [False, False, True, True]
    discard_segments(tmp_path / "no maps")


def test_rank_is_bound_to_its_core(rrba: Launcher) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    last = len(cpus) - 1
    process = rrba(
        *SMALL, "--steps", "1", OSUB_PIN="1", OSUB_JOB_CORES=f"n1:0-{last}", SLURMD_NODENAME="n1",
        SLURM_LOCALID=str(last), SLURM_PROCID="0",
    )  # fmt: skip
    code, report, _ = finish(process)
    assert code == 0
    assert report["affinity"] == [[cpus[-1]]]
    assert (report["pinned"], report["hosts"], report["warnings"]) == (True, ["n1"], [])
