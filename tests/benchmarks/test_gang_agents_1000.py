"""A thousand agents and one controller on this host; prints, asserts nothing about time.

    pytest -m benchmark -s tests/benchmarks/test_gang_agents_1000.py

Several processes host the agents (minds, sockets and keys are real; there is nothing to freeze). All of them
switch at the same instant, on the few CPUs of this host. ``OSUB_AGENTS`` (default 1000) sets how many,
``OSUB_FLEET_QUANTUM_MS`` (default 1000) the slice: each slice costs every agent about a millisecond, which a
cluster has on a thousand hosts and this host has on its own few CPUs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from gangd.controller.status import Status, read_status
from gangd.core.states import AgentState
from gangd.keys import make_keys
from osub.errors import InputError
from tests.fixtures.gang_fleet import ENDPOINTS
from tests.fixtures.gang_trials import Figures, noise, wait_slowly

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

AGENTS = int(os.environ.get("OSUB_AGENTS", "1000"))
QUANTUM_MS = float(os.environ.get("OSUB_FLEET_QUANTUM_MS", "1000"))
PROCESSES = 8
MEASURE_S = 20.0
ROOT = Path(__file__).parents[2]


@pytest.fixture
def start() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def launch(stack: ExitStack, log: Path, *words: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fixtures.gang_fleet", *words], cwd=ROOT, stderr=stream
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def status_of(folder: Path) -> Status | None:
    with suppress(InputError):
        return read_status(folder)
    return None


def joined(status: Status | None) -> int:
    return sum(node.agent == AgentState.JOINED for node in status.nodes) if status else 0


def cpu_s(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def test_a_thousand_agents(start: ExitStack, tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", [f"n{number + 1}" for number in range(AGENTS)])
    controller = launch(
        start,
        tmp_path / "controller.log",
        *("controller", str(tmp_path), "--nodes", str(AGENTS), "--quantum-ms", f"{QUANTUM_MS:g}"),
    )
    wait_slowly((tmp_path / ENDPOINTS).exists, 60, "controller listens")
    began_s = time.monotonic()
    each = -(-AGENTS // PROCESSES)
    hosts = {}
    for number in range(PROCESSES):
        first, out = number * each + 1, tmp_path / f"applied-{number}.json"
        count = min(each, AGENTS - first + 1)
        words = ("agents", str(tmp_path), "--first", str(first), "--count", str(count), "--out", str(out))
        hosts[out] = launch(start, tmp_path / f"agents-{number}.log", *words)
    state = tmp_path / "state"
    wait_slowly(lambda: joined(status_of(state)) == AGENTS, 240, "all agents joined")
    joined_s = time.monotonic() - began_s
    time.sleep(5 * QUANTUM_MS / 1000)  # the first rotation, and what joining left behind
    processes = [psutil.Process(controller.pid), *(psutil.Process(host.pid) for host in hosts.values())]
    from_ns, before = time.monotonic_ns(), [cpu_s(process) for process in processes]
    with noise() as host_noise:
        time.sleep(MEASURE_S)
    to_ns, after = time.monotonic_ns(), [cpu_s(process) for process in processes]
    status = status_of(state)
    late_ms: list[float] = []
    for out, host in hosts.items():
        host.send_signal(signal.SIGTERM)
        wait_slowly(out.exists, 30, f"{out.name} is written")
        host.wait()
        late_ms += [late / 1e6 for at, late in json.loads(out.read_text()) if from_ns <= at <= to_ns]
    assert status is not None
    used = [(late - early) / MEASURE_S for early, late in zip(before, after, strict=True)]
    late_ms.sort()
    p50, p99 = (late_ms[int(share * len(late_ms))] for share in (0.5, 0.99))
    figures = Figures()
    figures.add(
        f"{AGENTS} agents in {PROCESSES} processes: slice applied after its instant",
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {late_ms[-1]:.1f} ms",
        "p99 at most 50 ms",
        f"{len(late_ms)} switches in {MEASURE_S:g} s, {QUANTUM_MS:g} ms slices, {os.cpu_count()} CPUs; "
        f"{joined(status)} joined, after {joined_s:.0f} s; {host_noise}",
    )
    figures.add(
        "the same: the controller's CPU",
        f"{used[0]:.1%} of a core",
        "reported",
        f"with {status.shared_jobs} jobs; the agents' processes {sum(used[1:]):.0%} of a core together; "
        f"a tick {status.tick_us / 1000:.1f} ms",
    )
    print(f"\n{figures.table()}")
