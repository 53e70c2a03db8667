"""Stock NPB as a measured application, with a stand-in that prints as the benchmarks do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from foundation.errors import UsageError
from osub.cli.main import run
from predictor.measure.frozen_program import FrozenProgram, ProgramError
from predictor.measure.pair_trial import measure
from predictor.programs.program_catalogue import applications_named, known_applications
from tests.integration.waiting import wait_until
from workloads.task.step_meter import make_meter, read_meter

# Prints as NPB 3.4 does: LU, BT and SP the first time step and each twentieth, MG the first and each fifth.
STAND_IN = """#!{python}
import os, sys
name, klass = os.path.basename(sys.argv[0]).split(".")[:2]
lines = open({{"mg": "mg.input"}}.get(name, "input" + name + ".data")).read().splitlines()
count = int(lines[5] if name == "lu" else lines[2] if name == "mg" else lines[0])
every, word = (5, "  iter %4d") if name == "mg" else (20, " Time step %4d")
print(" NAS Parallel Benchmarks (NPB3.4-OMP) -", name.upper(), "Benchmark")
if klass == "B":
    sys.exit("no memory")
if klass == "C":
    count = 0
field = [1.0] * 3000
for number in range(1, count + 1):
    field = [1.0000001 * value for value in field]
    if number in (1, count) or number % every == 0:
        print(word % number if number < 10000 else word.split(" %")[0] + " ****")
print(" ", name.upper(), "Benchmark Completed.")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for program in ("lu.S.x", "lu.W.x", "bt.S.x", "bt.B.x", "bt.C.x", "mg.S.x"):
        path = tmp_path / "bin" / program
        path.write_text(STAND_IN.format(python=sys.executable))
        path.chmod(0o755)
    (tmp_path / "bin" / "sp.S.x").write_text("no program")
    return tmp_path


def test_the_benchmarks_that_are_there_are_applications(folder: Path) -> None:
    given = {"OSUB_NPB": str(folder)}
    assert [each.name for each in applications_named(["npb"], given)] == [
        "npb.lu.S",
        "npb.lu.W",
        "npb.bt.S",
        "npb.bt.B",
        "npb.bt.C",
        "npb.mg.S",
    ]
    # Whoever means LU means all of them: they are alike.
    assert {"lu.S", "lu.W", "npb.lu.S"} <= {each.name for each in applications_named(["lu"], given)}
    assert not any(name.startswith("npb.") for name in known_applications({}))


@pytest.mark.parametrize(
    ("name", "variables", "told"),
    [
        ("npb", {}, "set OSUB_NPB"),
        ("npb.lu.S", {}, "set OSUB_NPB"),
        ("npb.sp.S", {"OSUB_NPB": "."}, "has no such program"),
        ("npb.\x1b[31m", {}, "set OSUB_NPB"),
    ],
)
def test_a_benchmark_that_is_not_there_is_one_line(
    name: str, variables: dict[str, str], told: str, folder: Path
) -> None:
    if variables:
        variables = {"OSUB_NPB": str(folder)}
    with pytest.raises(UsageError, match=told) as caught:
        applications_named([name], variables)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lu", "bt", "mg"])
def test_as_many_steps_are_reported_as_were_asked_for(name: str, folder: Path, tmp_path: Path) -> None:
    meter = make_meter(tmp_path / "meter")
    application = known_applications({"OSUB_NPB": str(folder)})[f"npb.{name}.S"]
    done = subprocess.run(
        application.command(7),
        env={**os.environ, "OSUB_METER": str(tmp_path / "meter")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reading = read_meter(meter)
    assert reading is not None
    assert reading.steps == 7


def test_benchmarks_that_print_no_steps_are_run_whole_again_and_again(folder: Path, tmp_path: Path) -> None:
    binary = folder / "bin" / "cg.S.x"
    binary.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\n")
    binary.chmod(0o755)
    try:
        application = known_applications({"OSUB_NPB": str(folder)})["npb.cg.S"]
        assert (application.family, application.step) == ("cg", "a whole run")
        subprocess.run(application.command(3), check=True, timeout=60)
    finally:
        binary.unlink()
    assert (tmp_path / "runs").read_text().split() == ["run"] * 3


def is_over(pid: int) -> bool:
    """Whether a process is gone, or dead and only not reaped yet by whoever adopted it."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_it_has_a_speed_in_a_window_and_is_gone_afterwards(folder: Path, tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    application = known_applications({"OSUB_NPB": str(folder)})["npb.lu.W"]
    running = FrozenProgram(application, tmp_path, [cpu], 0)
    pids = [process.pid for process in running.processes]
    try:
        assert len(pids) >= 2  # the benchmark, too, is stopped and let run
        assert measure([running], [cpu], 0.0, 0.1).paces[0].speed > 0
    finally:
        running.close()
    wait_until(lambda: all(is_over(pid) for pid in pids), 30, "all are over")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "told"),
    [("npb.bt.B", "bt.B.x ended with code 1; it printed last"), ("npb.bt.C", "tells no time steps")],
)
def test_a_benchmark_that_dies_or_reports_nothing_is_named(
    name: str, told: str, folder: Path, tmp_path: Path
) -> None:
    application = known_applications({"OSUB_NPB": str(folder)})[name]
    with pytest.raises(ProgramError, match=told):
        FrozenProgram(application, tmp_path, [min(os.sched_getaffinity(0))], 0)


def test_what_runs_it_takes_four_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from predictor.programs import npb_program as npb

    monkeypatch.setattr(sys, "argv", ["npb", "folder", "lu"])
    assert npb.main() == 2
    assert "FOLDER NAME CLASS STEPS" in capsys.readouterr().err
    monkeypatch.delenv("OSUB_NPB", raising=False)
    assert run(["predict", "run", "npb.lu.S", "--steps", "3"]) == 2
    assert "no application is called" in capsys.readouterr().err
