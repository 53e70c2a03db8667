"""How long hybrid runs take: ``pytest -m benchmark -s tests/benchmarks/test_hybrid_figures.py``.

A year of jobs like Theta's on 4,392 nodes (made, or the SWF file that ``OSUB_THETA`` names): a run of each
mechanism, and each event with its pass.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import numpy as np
import pytest

from simulator.experiments.hybrid_study import NODES, made_workload
from simulator.experiments.hybrid_survey import EVEN, MECHANISMS, OVERHEAD, drawn
from simulator.hybrid.hybrid_pool import run_jobs
from simulator.model.system import System, single_queue
from simulator.simulation.simulation_options import Cleaning
from simulator.simulation.trace_workload import Workload, make_workload
from tests.fixtures.voice import say
from workloads.swf import load_columns

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]


def year() -> Workload:
    path = os.environ.get("OSUB_THETA")
    if not path:
        return made_workload(24_000, NODES)
    cleaning = Cleaning(interactive_queue=None)
    return make_workload(load_columns(Path(path)), single_queue(System(NODES, 1), 1), cleaning)


def test_a_year_and_its_decisions() -> None:
    workload = year()
    began_s = time.process_time()
    jobs = drawn(workload, NODES, 1, EVEN)
    drawn_s = time.process_time() - began_s
    for name, mechanism in MECHANISMS.items():
        run_jobs(jobs, NODES, mechanism, OVERHEAD)
        whole_s, loop_s = [], []
        for _ in range(3):
            began_s = time.process_time()
            found = run_jobs(jobs, NODES, mechanism, OVERHEAD)
            whole_s.append(time.process_time() - began_s)
            loop_s.append(found.engine_cpu_s)
        clocked: list[float] = []
        run_jobs(jobs, NODES, mechanism, OVERHEAD, clocked=clocked)
        p50, p99, most = 1e6 * np.percentile(clocked[1:], [50, 99, 100])
        say(
            f"{name}: {workload.count} jobs, {statistics.median(whole_s):.2f} s of CPU a run, "
            f"{statistics.median(loop_s):.2f} in the loop, jobs drawn in {drawn_s:.2f}; an event with its "
            f"pass {p50:.0f} us, p99 {p99:.0f}, at most {most:.0f}  [load {os.getloadavg()[0]:.1f}]"
        )
