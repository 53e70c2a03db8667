"""How long eviction takes: ``pytest -m benchmark -s tests/benchmarks/test_eviction_figures.py``.

CoSim's scenario 3 (24 jobs on 4,352 nodes, K = 2,048, deadlines 0 to 15), with sizes in steps of 8 and with
sizes that have no common divisor, compiled and in this process; and a whole command, a process of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.eviction import EvictionSolver, Question, solve
from simulator.eviction.eviction_problem import Storage
from simulator.experiments.eviction_scenarios import instant_of, question_of
from simulator.experiments.eviction_survey import table_s
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]
STORAGE = Storage(all_gb_s=250.0, node_gb_s=1.0)
WORLDS = 30


def question(seed: int, *, odd: bool) -> Question:
    asked = question_of(instant_of(None, 2, np.random.default_rng(seed)), 2048, STORAGE, [seed])
    if not odd:
        return asked
    first, second, *others = asked.jobs
    moved = [replace(first, nodes=first.nodes + 1), replace(second, nodes=second.nodes - 1), *others]
    return replace(asked, jobs=moved)


def took_ms(act: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    act()
    return 1e3 * (time.perf_counter() - began_s)


@pytest.mark.parametrize("odd", [False, True])
def test_scenario_3(odd: bool) -> None:
    asked = [question(seed, odd=odd) for seed in range(WORLDS)]
    solve(asked[0])
    tables = [1e3 * table_s(one) for one in asked]
    answers = [took_ms(lambda one=one: solve(one)) for one in asked for _ in range(3)]  # type: ignore[misc]
    greedy = [took_ms(lambda one=one: solve(one, EvictionSolver.GREEDY)) for one in asked]  # type: ignore[misc]
    sizes = "without a common divisor" if odd else "in steps of 8"
    typical = statistics.median(answers)
    say(
        f"sizes {sizes}: table {statistics.median(tables):.2f} ms, all answers {typical:.2f}"
        f" ms, at most {max(answers):.2f}; greedy's {statistics.median(greedy):.2f} ms in Python  "
        f"[load {os.getloadavg()[0]:.1f}]"
    )


def test_a_whole_command(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rows = [
        f"{j.name},{j.nodes},{j.loss:.6f},{j.ts_min:.6f},{j.ta_min:.6f}" for j in question(1, odd=False).jobs
    ]
    path.write_text("job,nodes,loss,ts_min,ta_min\n" + "\n".join(rows) + "\n")
    words = ["evict", str(path), "--free-nodes", "2048", "--deadline", "15", "--all-deadlines", "--json"]
    command = [sys.executable, "-m", "osub.cli.main", *words]
    times = [
        took_ms(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)) for _ in range(5)
    ]
    say(f"`osub evict`, 24 jobs, all deadlines: {min(times):.0f} ms  [load {os.getloadavg()[0]:.1f}]")
