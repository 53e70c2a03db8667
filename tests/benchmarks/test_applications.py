"""How exactly the applications keep their times on this host; reports, and asserts no time.

Run on an idle host: ``pytest -s -m benchmark tests/benchmarks/test_applications.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import UsageError
from tests.fixtures.voice import say
from workloads.rrba.solvers.applications import APPLICATIONS

pytestmark = pytest.mark.benchmark


def timed(module: str, *arguments: str) -> tuple[float, dict[str, Any]]:
    """Run a program; return its wall seconds from outside and its report."""
    begin_s = time.monotonic()
    stamp = {"OSUB_WRAPPER_START_MS": str(round(time.time() * 1000))}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=os.environ | stamp,
        check=True,
        capture_output=True,
        text=True,
    )
    return time.monotonic() - begin_s, json.loads(done.stdout)


def load() -> str:
    return f"load average {os.getloadavg()[0]:.2f}"


def test_start_up() -> None:
    for name, module, arguments in (
        ("eiba, idle only", "workloads.eiba", ("1", "0")),
        ("eiba, with a busy period", "workloads.eiba", ("2", "0", "0.001")),
        ("rrba, one step", "workloads.rrba", ("--app", "jacobi", "--steps", "1")),
    ):
        walls_s = sorted(timed(module, *arguments)[0] for _ in range(5))
        say(f"{name}: median {walls_s[2]:.3f} s, most {walls_s[-1]:.3f} s, {load()}")


@pytest.mark.parametrize("memory", [(), ("--memory-mib", "128", "--traffic", "0.5")])
@pytest.mark.parametrize("busy_s", [0.05, 0.2, 1.0, 5.0])
def test_busy_period(busy_s: float, memory: tuple[str, ...]) -> None:
    _, report = timed("workloads.eiba", *memory, "2", "0.2", str(busy_s))
    cpu_ms, wall_ms = (1e3 * (report[name] - busy_s) for name in ("busy_s", "busy_wall_s"))
    limit_ms = max(20 * busy_s, 5.0)
    say(
        f"busy {busy_s} s{' with memory' if memory else ''}: CPU time {cpu_ms:+.2f} ms, wall time"
        f" {wall_ms:+.2f} ms (aim: within {limit_ms:.0f} ms), {load()}"
    )


@pytest.mark.parametrize("target_s", [1.0, 3.0, 10.0])
def test_target(target_s: float) -> None:
    wall_s, report = timed("workloads.rrba", "--app", "jacobi", "--target-s", str(target_s))
    off_s = wall_s - target_s
    say(
        f"target {target_s} s: {off_s:+.3f} s, {off_s / target_s:+.1%}, CPU {report['cpu_s']:.3f} s, "
        f"{report['steps']} steps of {1e3 * report['step_s']:.3f} ms, {load()}"
    )


@pytest.mark.parametrize("app", ["lu", "bt", "sp", "mg"])
def test_step_by_class_and_ranks(app: str) -> None:
    """Milliseconds an iteration; more ranks than cores are left out."""
    application = APPLICATIONS[app]
    cores = len(os.sched_getaffinity(0))
    for name, grid in application.classes.items():
        if application.rank_bytes(grid, 1) > 2**33 or (app == "mg" and name == "B"):
            continue  # too much memory here; mg's B is A
        cells = []
        for ranks in (1, 2, 4, 8):
            try:
                application.check(grid, ranks)
            except UsageError:
                continue
            if ranks > cores:
                continue
            steps = max(3, round(1.5 / step_seconds(app, name, ranks, 2)))
            cells.append(f"{ranks} ranks {1e3 * step_seconds(app, name, ranks, steps):.3f} ms")
        memory_mib = application.rank_bytes(grid, 1) >> 20
        say(f"{app}.{name} ({grid}, {memory_mib} MiB): {', '.join(cells)}, {load()}")


def step_seconds(app: str, grid_class: str, ranks: int, steps: int) -> float:
    words = ["--app", app, "--class", grid_class, "--itr", str(steps)]
    command = [sys.executable, "-m", "workloads.rrba", *words]
    if ranks > 1:
        mpiexec = shutil.which(
            "mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )
        assert mpiexec is not None, "no mpiexec"
        command = [mpiexec, "-n", str(ranks), *command]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["busy_s"]) / steps
