"""The same seed gives the same bytes: in every run, in every process, compiled and not."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from osub.cli.main import run
from simulator.hybrid.hybrid_pool import run_jobs
from tests.fixtures.simulated_worlds import digests
from tests.property.simulator.hybrid_cases import HybridWorld, baseline, sharing, world_of

COUNT = 250
COMMAND = "import typer; from osub.cli.simulate import simulate; typer.run(simulate)"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("trace") / "mixed.swf"
    lines = []
    for number in range(1, COUNT + 1):
        submit, run = int(rng.integers(0, 20_000)), int(rng.integers(60, 4000))
        procs = int(rng.integers(1, 40))
        line = f"{number} {submit} -1 {run} {procs} -1 -1 {procs} {run + 500} -1 1 {number % 7} 1 -1"
        if number % 5:
            lines.append(f"{line} 1 -1 -1 -1")
        else:
            busy = run // 3
            lines.append(f"{line} 0 -1 -1 -1 -1 -1 -1 10 {run - 30 - busy} 2 {busy - 5} 5 20")
    path.write_text("\n".join(lines) + "\n")
    return path


def words_of(trace: Path, out: Path, options: list[str]) -> list[str]:
    words = [str(trace), "--system", "N12C4", "--multiplicity", "3", "--oversize", "skip"]
    return [*words, "--out", str(out), *options]


def jobs_bytes(trace: Path, out: Path, options: list[str], *, compiled: bool) -> bytes:
    environment = {**os.environ, "OSUB_JIT": "1" if compiled else "0"}
    subprocess.run(
        [sys.executable, "-c", COMMAND, *words_of(trace, out, options)],
        check=True,
        env=environment,
        capture_output=True,
        timeout=280,
    )
    return (out / "jobs.parquet").read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        ["--placement", "thesis"],
        ["--placement", "lln", "--node-noise", "0.05", "--seed", "4"],
        ["--policy", "fcfs", "--placement", "thesis", "--queues", "mq", "--interactive-share", "20%"],
        pytest.param(
            ["--policy", "fcfs", "--queues", "mq", "--interactive-share", "20%"],
            marks=pytest.mark.long,  # it compiles a loop of its own
        ),
    ],
    ids=["easy", "noisy", "mq", "mq on rows"],
)
def test_compiled_and_plain_processes_write_the_same_bytes(
    trace: Path, tmp_path: Path, options: list[str]
) -> None:
    here = tmp_path / "here"
    assert run(["simulate", *words_of(trace, here, options)]) == 0  # compiled, in this process
    first = (here / "jobs.parquet").read_bytes()
    assert jobs_bytes(trace, tmp_path / "compiled", options, compiled=True) == first
    assert jobs_bytes(trace, tmp_path / "plain", options, compiled=False) == first


def test_compiled_and_plain_kernels_agree_on_two_hundred_nodes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fixtures.simulated_worlds"],
        env=dict(os.environ) | {"OSUB_JIT": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    plain = json.loads(done.stdout)
    assert plain.pop("compiled") is False
    assert plain == digests()


WORLDS = 60
_COLUMNS = ("start_us", "end_us", "ready_us", "held_node_us", "lost_us", "setup_us", "preemptions", "shrinks")


def digest(worlds: list[HybridWorld]) -> str:
    digest_now = hashlib.sha256()
    for world in worlds:
        found = run_jobs(world.jobs, world.nodes, world.mechanism, records=True)
        for name in _COLUMNS:
            digest_now.update(found.column(name).tobytes())
        for name in ("job", "from_us", "to_us", "why", "setup_us", "lost_us", "node", "mask"):
            digest_now.update(getattr(found.stretches, name).tobytes())
    return digest_now.hexdigest()


@pytest.mark.long  # it compiles a loop of its own
def test_compiled_kernels_do_what_plain_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [
        change(world_of(seed)) for seed in range(WORLDS) for change in (lambda it: it, sharing, baseline)
    ]
    monkeypatch.setenv("OSUB_JIT", "0")
    plain = digest(worlds)
    monkeypatch.setenv("OSUB_JIT", "1")
    assert digest(worlds) == plain
