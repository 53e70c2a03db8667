"""Stock NPB through its own input files, with a small stand-in that reads them where NPB does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import InputError, UsageError
from workloads.rrba.calibration_kinds import kind_from_words
from workloads.rrba.npb import NpbResult, find_binary, input_file, read_result
from workloads.rrba.steps.calibrations import Calibration, host_type, load_calibrations, store_calibration
from workloads.rrba.steps.calibrations import Key as CalibrationKey

pytestmark = pytest.mark.slow

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

# Reads values by line number, as the benchmarks do, and closes as they do after an unusual count.
STAND_IN = """#!{python}
import os, sys
name, klass = os.path.basename(sys.argv[0]).split(".")[:2]
if int(os.environ.get("PMI_RANK", "0")) > 0:
    sys.exit(0)
file = {{"mg": "mg.input"}}.get(name, "input" + name + ".data")
lines = open(file).read().splitlines()
if name == "lu":
    norm, count, step = lines[2].split(), int(lines[5]), float(lines[8])
    omega, tolerances, grid = float(lines[11]), lines[14].split(), lines[17].split()
    assert len(norm) == 2 and len(tolerances) == 5 and 0 < omega < 2
elif name == "mg":
    levels, grid, count, debug = int(lines[0]), lines[1].split(), int(lines[2]), lines[3].split()
    assert len(debug) == 8 and 2 ** levels == int(grid[0])
else:
    count, step, grid = int(lines[0]), float(lines[1]), lines[2].split()
assert len(grid) == 3
if os.environ.get("STAND_IN") == "deaf":
    count = 250
print(" ", name.upper(), "Benchmark Completed.")
print(" Class           =                        U")
print(" Size            = ", "x".join(grid))
print(" Iterations      = ", count)
print(" Time in seconds = %20.2f" % (0.01 * count))
print(" Verification    =             UNSUCCESSFUL")
print(" threads", os.environ.get("OMP_NUM_THREADS"), os.environ.get("OMP_WAIT_POLICY"), file=sys.stderr)
sys.exit(3 if os.environ.get("STAND_IN") == "broken" else 0)
"""


@pytest.fixture
def npb(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for program in ("lu.A.x", "bt.W.x", "sp.S.x", "mg.S.x"):
        (path := tmp_path / "bin" / program).write_text(STAND_IN.format(python=sys.executable))
        path.chmod(0o755)
    return tmp_path


def rrba(*words: str, ranks: int | None = None, **variables: str) -> tuple[int, dict[str, Any], str]:
    before: list[str] = []
    if ranks is not None:
        if MPIEXEC is None:
            pytest.skip("no mpiexec in this environment; install the package mpich")
        before = [MPIEXEC, "-n", str(ranks)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "OSUB", "PMI", "OMP"))}
    done = subprocess.run(
        [*before, sys.executable, "-m", "workloads.rrba", *words], env=environment | variables,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(reports) <= 1
    return done.returncode, reports[0] if reports else {}, done.stderr


@pytest.mark.parametrize(
    ("app", "grid_class", "file"),
    [
        ("lu", "A", "inputlu.data"),
        ("bt", "W", "inputbt.data"),
        ("sp", "S", "inputsp.data"),
        ("mg", "S", "mg.input"),
    ],
)
def test_values_are_in_the_lines_that_the_benchmark_reads(
    npb: Path, app: str, grid_class: str, file: str
) -> None:
    assert input_file(app, grid_class, 37).name == file
    code, report, err = rrba("--npb", str(npb), "--app", app, "--class", grid_class, "--itr", "37")
    assert code == 0, err
    # UNSUCCESSFUL was printed: the count is not the usual one.
    assert (report["state"], report["steps"], report["steps_asked"]) == ("completed", 37, 37)
    assert (report["kernel"], report["busy_s"]) == (f"npb {app}.{grid_class}", pytest.approx(0.37))
    assert report["startup_s"] is not None
    assert report["omp_wait_policy"] is None


def test_ranks_are_the_launchers_and_one_reports(npb: Path) -> None:
    code, report, err = rrba("--npb", str(npb), "--app", "bt", "--class", "W", "--itr", "5", ranks=4)
    assert code == 0, err
    assert (report["tasks"], report["steps"], report["cpu_s"]) == (4, 5, None)
    code, report, err = rrba("--npb", str(npb), "--app", "bt", "--class", "W", "--itr", "5", ranks=2)
    assert (code, report) == (2, {})
    assert "square number of ranks" in err


def test_openmp_runs_once_with_a_thread_for_each_task_and_records_how_it_waits(npb: Path) -> None:
    words = (
        "--npb", str(npb), "--npb-omp", "--omp-wait-passive", "--app", "lu", "--class", "A",
        "--itr", "5",
    )  # fmt: skip
    code, report, err = rrba(*words, ranks=3)
    assert code == 0, err
    assert (report["tasks"], report["omp_wait_policy"]) == (3, "passive")
    assert "threads 3 passive" in err
    assert rrba(*words[:3], *words[4:])[1]["omp_wait_policy"] is None


def test_openmp_threads_have_the_cores_of_all_tasks(npb: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    cores = {"OSUB_PIN": "1", "OSUB_JOB_CORES": f"n1:0-{len(cpus) - 1}", "SLURMD_NODENAME": "n1"}
    slurm = {"SLURM_STEP_NUM_TASKS": str(len(cpus)), "SLURM_PROCID": "0"}
    words = ("--npb", str(npb), "--npb-omp", "--app", "lu", "--class", "A", "--itr", "5")
    code, report, err = rrba(*words, ranks=None, **cores, **slurm)
    assert code == 0, err
    assert (report["affinity"], report["pinned"], report["tasks"]) == ([cpus], True, len(cpus))


@pytest.mark.parametrize(
    ("mood", "complaint"), [("deaf", "made 250 iterations, not 37"), ("broken", "exited with code 3")]
)
def test_benchmark_that_did_something_else_fails_the_job(npb: Path, mood: str, complaint: str) -> None:
    words = ("--npb", str(npb), "--app", "sp", "--class", "S", "--itr", "37")
    code, report, err = rrba(*words, STAND_IN=mood)
    assert code == 1
    assert report["state"] == "failed"
    assert complaint in report["failure"]
    assert complaint in err


def test_target_is_planned_from_a_calibration_of_the_stock_binary(npb: Path, tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    words = ("--npb", str(npb), "--app", "lu", "--class", "A", "--target-s", "10", "--calibration", str(path))
    ours = CalibrationKey(host_type(), "lu", "64x64x64", 1, 1)
    store_calibration(path, Calibration(ours, 0.5, 0.5, 10, 1))
    code, _, err = rrba(*words)
    assert code == 1
    assert "no calibration of npb-lu" in err
    kind = kind_from_words("lu", "A", 1, 1, ["--npb", str(npb)])
    key = CalibrationKey(host_type(), kind.calibrated_as, str(kind.grid), 1, 1)
    store_calibration(path, Calibration(key, 0.5, 1.0, 10, 1))
    assert len(load_calibrations(path)) == 2
    code, report, err = rrba(*words)
    assert code == 0, err
    assert (report["steps"], report["step_s"], report["clipped"]) == (18, 0.5, False)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--app", "lu", "--itr", "5"], "--npb needs --class"),
        (["--app", "lu", "--class", "A", "--target-s", "5"], "needs --calibration"),
        (["--app", "lu", "--class", "A", "--itr", "5", "--omp-wait-passive"], "for --npb-omp"),
        (["--app", "jacobi", "--class", "A", "--itr", "5"], "jacobi has none"),
    ],
)
def test_words_that_do_not_fit_are_refused(tmp_path: Path, words: list[str], complaint: str) -> None:
    code, _, err = rrba("--npb", str(tmp_path), *words)
    assert code == 2
    assert complaint in err


def test_missing_binary_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="make lu CLASS=B"):
        find_binary(tmp_path, "lu", "B")
    with pytest.raises(UsageError, match="not 'cg'"):
        input_file("cg", "S", 1)


def test_output_is_judged_by_completion_time_and_count() -> None:
    text = " LU Benchmark Completed.\n Iterations = 5\n Time in seconds =  1.5e+00\n"
    text += " Verification = UNSUCCESSFUL\n"
    assert read_result(text, 5) == NpbResult(1.5, 5)
    assert "did not read its input file" in str(read_result(text, 6))
    assert "printed last: out of memory" in str(read_result("time step 1\nout of memory\n\n", 5))
    assert "printed no time" in str(read_result(" MG Benchmark Completed\n Iterations = 5\n", 5))


@pytest.mark.skipif("OSUB_NPB" not in os.environ, reason="no stock NPB: set OSUB_NPB to its folder")
@pytest.mark.parametrize("app", ["lu", "bt", "sp", "mg"])
def test_real_benchmark_makes_the_iterations_asked_for(app: str) -> None:
    code, report, err = rrba("--npb", os.environ["OSUB_NPB"], "--app", app, "--class", "S", "--itr", "7")
    assert code == 0, err
    assert report["steps"] == 7
