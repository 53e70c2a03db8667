"""How long malleable jobs take: ``pytest -m benchmark -s tests/benchmarks/test_malleable_figures.py``.

28 days of ``theta_2022`` (below ``OSUB_SHARED/traces``) under EASY and four strategies, six shares of
malleable jobs and ten seeds, on all CPUs; and one such run of each strategy. Without malleable jobs all are
EASY, and no seed decides anything, so 201 of the 300 runs differ.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from simulator.experiments.job_windows import trace_window
from simulator.experiments.malleable_survey import STRATEGIES, MalleableCase, cases_of, run_case, run_cases
from tests.fixtures.voice import say

SHARED = Path(os.environ.get("OSUB_SHARED", Path(__file__).parents[3] / "shared"))
THETA = SHARED / "traces" / "theta_2022.swf.gz"
pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not THETA.exists(), reason="needs theta_2022.swf.gz in OSUB_SHARED/traces"),
]
SEEDS = 10


def test_four_weeks_of_theta() -> None:
    window = trace_window(THETA, 28)
    for policy in STRATEGIES:
        case = MalleableCase(policy=policy, share=100)
        run_case(window, case)
        began_s = time.perf_counter()
        run_case(window, case)
        say(f"{policy}, all malleable, {window.workload.count:,} jobs: {time.perf_counter() - began_s:.3f} s")
    cases = cases_of(SEEDS)
    began_s = time.perf_counter()
    run_cases(window, cases, lambda _: None)
    took_s = time.perf_counter() - began_s
    say(f"{len(cases)} runs on {os.cpu_count()} CPUs: {took_s:.1f} s  [load {os.getloadavg()[0]:.1f}]")
