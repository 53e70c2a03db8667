"""How late jobs are submitted: 500 short jobs at 20 a second on a real Slurm, host idle and host busy.

Run with ``scripts/test -m benchmark -s tests/benchmarks/test_submission_lag.py``; prints, asserts nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local import LocalCluster, Shape
from deploy.local.host import find_program
from foundation.records import load_run
from submitter.plan.replay_options import ReplayOptions
from submitter.replay.replay_loop import Replay

JOBS, RATE = 500, 20.0

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.slurm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_program("slurmctld") is None, reason="no Slurm on this host"),
]


@contextmanager
def spinners(count: int) -> Iterator[None]:
    """Keep ``count`` cores busy."""
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_submission_lag(tmp_path: Path, busy: bool) -> None:
    trace, apps = tmp_path / "t.swf", tmp_path / "apps.csv"
    trace.write_text(
        "".join(f"{n} {n / RATE:.3f} -1 1 1 -1 -1 1 60 -1 1 1 1 -1 1 -1 -1 -1\n" for n in range(1, JOBS + 1))
    )
    apps.write_text("trace_job,app,args\n" + "".join(f"{n},true,\n" for n in range(1, JOBS + 1)))
    cluster = LocalCluster(tmp_path / "c")
    cluster.up(Shape(nodes=2, cores=1, multiplicity=8))
    try:
        with spinners(len(os.sched_getaffinity(0)) if busy else 0):
            load_before = os.getloadavg()[0]
            Replay.begin(trace, tmp_path / "run", cluster.client(), ReplayOptions(), apps).run()
    finally:
        cluster.down()
    jobs = load_run(tmp_path / "run").jobs
    lag = sorted(1000 * (row["submitted_s"] - row["due_s"]) for row in jobs.to_dicts())
    p50, p99, most = (lag[round(share * (len(lag) - 1))] for share in (0.5, 0.99, 1))
    print(
        f"\nsubmission lag of {jobs.height} jobs at {RATE:g}/s, host {'busy' if busy else 'idle'}: "
        f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, max {most:.0f} ms; "
        f"{jobs.filter(jobs['state'] == 'COMPLETED').height} completed; load before {load_before:.2f}, "
        f"after {os.getloadavg()[0]:.2f}"
    )
