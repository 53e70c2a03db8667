"""What records cost: 300,000 jobs to a RUN and back, journals, metrics, a page; reports, and asserts no time.

Run on an idle host: ``pytest -s -m benchmark tests/benchmarks/test_records_bulk.py``. Each case is a process
of its own, so that its peak memory is its own too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark

PREPARE = """
import resource, sys, time
from pathlib import Path
import numpy as np, polars as pl
from foundation.records import *
from tests.fixtures.records import make_ended, make_info, make_trace

folder, jobs_count, nodes_each = Path(sys.argv[1]), 300_000, int(sys.argv[2])
clock, cpu = time.perf_counter(), time.process_time()

def report(what):
    global clock, cpu
    wall, spent = time.perf_counter() - clock, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what:44} {wall:7.2f} s wall {spent:7.2f} s CPU, peak {peak:6.0f} MiB", flush=True)
    clock, cpu = time.perf_counter(), time.process_time()

def simulated():
    rng = np.random.default_rng(1)
    number = np.arange(1, jobs_count + 1)
    due = np.sort(rng.integers(0, 10**13, jobs_count)) / 1e6
    start, run = due + rng.integers(0, 10**9, jobs_count) / 1e6, rng.integers(1, 10**10, jobs_count) / 1e6
    entries = jobs_count * nodes_each
    first = np.repeat(rng.integers(0, 5544, jobs_count), nodes_each)
    placements = PlacementArrays(
        np.arange(jobs_count + 1) * nodes_each,
        ((first + np.tile(np.arange(nodes_each), jobs_count)) % 5544).astype(np.int32),
        rng.integers(0, 3, entries).astype(np.int32),
        [f"node{n:04d}" for n in range(5544)],
        ["0-15", "0-7", "8-15"],
    )
    frame = pl.DataFrame({
        "trace_job": number, "job_id": number, "nodes": np.full(jobs_count, nodes_each),
        "kind": np.where(rng.random(jobs_count) < 0.1, "interactive", "batch"),
        "user": rng.integers(1, 80, jobs_count).astype(str), "cores": rng.integers(1, 500, jobs_count),
        "due_s": due, "submit_s": due, "start_s": start, "end_s": start + run, "dedicated_s": run,
        "busy_s": run, "cpu_s": run * 4, "state": np.full(jobs_count, "COMPLETED"),
    })
    return frame, placements
"""

BULK = """
frame, placements = simulated()
report("made by the benchmark itself")
write_run(folder / "RUN", make_info(system="N5544C16"), make_trace(folder), frame, placements=placements)
report("write_run")
load_run(folder / "RUN", placement=False)
report("load_run without placements")
run = load_run(folder / "RUN")
report("load_run")
print(f"jobs.parquet has {(folder / 'RUN' / 'jobs.parquet').stat().st_size / 1e6:.1f} MB")
"""

PAGE = """
from analysis.metrics.run_metrics import measure
from analysis.report import write_report
measure(run)
report("measure")
write_report([run], folder / "report.html")
report("write_report (it measures too)")
print(f"the page has {(folder / 'report.html').stat().st_size / 1e6:.1f} MB")
"""

JOURNAL = """
journal = RowJournal(folder / "slices.journal")
for number in range(20_000):
    journal.append(*(
        SliceRecord(slice=number, start_s=number, length_s=0.25, job=job, node="n1", role="run", skew_us=9)
        for job in range(24)
    ))
journal.close()
report("append 480,000 slices, 24 at a time")
read_journal(folder / "slices.journal", SLICES)
report("read them")
journal, took = JobJournal(folder / "jobs.journal"), []
for number in range(5_000):
    job = make_ended(number)
    began = time.perf_counter()
    journal.append(JobEntry(job))
    took.append(1e6 * (time.perf_counter() - began))
journal.close()
took.sort()
print(f"append a job: p50 {took[2500]:.0f} us, p99 {took[4950]:.0f} us, max {took[-1]:.0f} us")
"""


@pytest.mark.parametrize(
    ("name", "program", "nodes_each"),
    [
        ("300,000 jobs on one node each", BULK + PAGE, 1),
        ("300,000 jobs on 45 nodes each, as CEA-Curie has", BULK, 45),
        ("journals", JOURNAL, 1),
    ],
)
def test_cost(tmp_path: Path, name: str, program: str, nodes_each: int) -> None:
    print(f"\n{name}; load average {os.getloadavg()[0]:.2f}", flush=True)
    subprocess.run([sys.executable, "-c", PREPARE + program, str(tmp_path), str(nodes_each)], check=True)
