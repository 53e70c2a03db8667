"""Starts of MPI over two nodes by ranks that have used their heaps, on a host that is idle or busy.

Run with ``OSUB_STARTS=200 scripts/test -m benchmark -s tests/benchmarks/test_mpi_starts.py``; prints.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.local import LocalCluster, Shape
from deploy.local.host import find_program
from deploy.mpi_trial import try_on_slurm

STARTS = int(os.environ.get("OSUB_STARTS", "20"))
SPIN = (sys.executable, "-S", "-c", "while True: pass")

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.slurm,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(find_program("slurmctld") is None, reason="no Slurm on this host"),
]


@pytest.mark.parametrize("one_host", [True, False], ids=["shm", "tcp"])
@pytest.mark.parametrize("spinners", [0, 4])
def test_starts_over_two_nodes(tmp_path: Path, spinners: int, one_host: bool) -> None:
    cluster = LocalCluster(tmp_path / "c")
    cluster.up(Shape(nodes=2, cores=1, virtual=True, multiplicity=2))
    busy = [subprocess.Popen(SPIN) for _ in range(spinners)]
    said, took_s = [], []
    try:
        for _ in range(STARTS):
            begin_s = time.monotonic()
            trial = try_on_slurm(cluster.folder / "slurm.conf", 2, one_host=one_host)
            took_s.append(time.monotonic() - begin_s)
            if not trial.is_started:
                said.append(trial.found)
    finally:
        for process in busy:
            process.kill()
            process.wait()
        cluster.down()
    print(
        f"\n{STARTS - len(said)} of {STARTS} starts over {'shm' if one_host else 'tcp'}, "
        f"{spinners} spinners, load {os.getloadavg()[0]:.1f}: "
        f"median {statistics.median(took_s):.2f} s, longest {max(took_s):.2f} s; {said[:3]}"
    )
    assert not said
