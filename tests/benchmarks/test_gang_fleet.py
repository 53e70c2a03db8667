"""A thousand agents at one controller: ``pytest -m benchmark -s tests/benchmarks/test_gang_fleet.py``.

The real controller over an in-memory Slurm, real agents' minds in several processes, CURVE between them.
Every two nodes share two jobs of width two. ``OSUB_FLEET`` sets the number of agents,
``OSUB_FLEET_QUANTUM_MS`` the slice: all agents share this host's few cores, which real ones don't.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gangd.curve_keys import SHARED_AGENT, make_keys
from tests.fixtures.looks import until

pytestmark = pytest.mark.benchmark

PROCESSES = 4
WARM_UP_S, MEASURED_S = 20.0, 20.0
CONTROLLER = "tests.fixtures.gang_controller"


def share(values: list[int], of: float) -> int:
    return sorted(values)[min(len(values) - 1, int(of * len(values)))]


def test_thousand_agents(tmp_path: Path) -> None:
    count = int(os.environ.get("OSUB_FLEET", "1000"))
    quantum_ms = float(os.environ.get("OSUB_FLEET_QUANTUM_MS", "1000"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 8 * count // PROCESSES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    make_keys(tmp_path / "keys", [SHARED_AGENT])
    (tmp_path / "state").mkdir()
    controller = subprocess.Popen(
        [sys.executable, "-m", CONTROLLER, str(tmp_path), str(count), str(quantum_ms)]
    )
    fleets: list[subprocess.Popen[bytes]] = []
    address = tmp_path / "address"
    try:
        until(lambda: address.exists() and "," in address.read_text(), 60, "the controller")
        for part in range(PROCESSES):
            nodes = [f"n{number + 1}" for number in range(part, count, PROCESSES)]
            spans = ["--warm-up", str(WARM_UP_S), "--seconds", str(MEASURED_S)]
            words = ["--keys", str(tmp_path / "keys"), "--controller", address.read_text()]
            fleets.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.fixtures.gang_fleet", *words, *spans, *nodes],
                    stdout=subprocess.PIPE,
                )
            )
        time.sleep(WARM_UP_S + 2)
        before_s, began_s = cpu_s(controller.pid), time.monotonic()
        time.sleep(MEASURED_S - 5)
        used = (cpu_s(controller.pid) - before_s) / (time.monotonic() - began_s)
        answers = [json.loads(fleet.communicate(timeout=120)[0]) for fleet in fleets]
    finally:
        for child in (*fleets, controller):
            child.send_signal(signal.SIGTERM)
            child.wait(20)
    late = [value for answer in answers for value in answer["late_us"]]
    applied = [value for answer in answers for value in answer["applied_us"]]
    assert late, "no agent joined: the host is too busy"
    print(f"\n{count} agents in {PROCESSES} processes, {quantum_ms:g} ms slices: {len(late)} switches")
    print(f"  begun late by, us: p50 {share(late, 0.5)}, p99 {share(late, 0.99)}, most {max(late)}")
    print(f"  applied after the instant, us: p50 {share(applied, 0.5)}, p99 {share(applied, 0.99)}")
    print(f"  of them with a held job: {sum(answer['with_held'] for answer in answers)}")
    print(
        f"  controller: {100 * used:.0f}% of a core; agents: {sum(each['cpu_s'] for each in answers):.1f} s"
    )
    assert sum(answer["with_held"] for answer in answers) > len(late) // 2


def cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)
