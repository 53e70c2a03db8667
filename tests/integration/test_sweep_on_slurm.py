"""A sweep whose points run in Slurm's jobs: each once, whatever becomes of the sweep, and no job left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from deploy.local import LocalCluster
from tests.fixtures.looks import until

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

SWF = "".join(
    f"{number} {10 * number} -1 {30 + 7 * (number % 5)} {1 + number % 3} -1 -1 -1 200 -1 1 {number % 4} "
    "1 -1 1 -1 -1 -1\n"
    for number in range(1, 41)
)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "log.swf").write_text(f"; MaxProcs: 4\n{SWF}")
    (path := tmp_path / "sweep.toml").write_text(
        '[base]\ntrace = "log.swf"\nsystem = "N2C2"\n[grid]\nmultiplicity = [1, 2, 3]\n'
        "overhead = [1.0, 1.2]\n"
    )
    return path


def command(spec: Path, cluster: LocalCluster, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "osub.cli.main", "sweep", str(spec), "--out", str(spec.parent / "out")),
        *("--slurm", "2", "--cluster", str(cluster.folder), "--slurm-host", "127.0.0.1"),
        *("--slurm-memory-mib", "700", "--json", *more),
    ]


def jobs_of(cluster: LocalCluster) -> str:
    said = subprocess.run(
        ["squeue", "--noheader", "--name=osub-sweep", "--format=%i %T"],
        env=dict(os.environ, SLURM_CONF=str(cluster.folder / "slurm.conf")),
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout


def test_points_run_in_jobs_and_a_killed_sweep_goes_on(shared_cluster: LocalCluster, spec: Path) -> None:
    finished = spec.parent / "out" / "points"
    begun = subprocess.Popen(command(spec, shared_cluster), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until(lambda: len(list(finished.glob("*.json"))) > 0, 120, "no point was done")
    finally:
        begun.send_signal(signal.SIGKILL)
        begun.communicate()
    done = len(list(finished.glob("*.json")))
    again = subprocess.run(command(spec, shared_cluster), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    facts = json.loads(again.stdout)
    assert facts["points"] == 6
    assert facts["known"] >= min(done, 1)
    assert facts["known"] + facts["done"] == 6
    assert pl.read_parquet(facts["table"]).height == 6
    # Those of the sweep that was killed notice by themselves that it asks no more.
    until(lambda: not jobs_of(shared_cluster).strip(), 150, "jobs were left")


def test_jobs_that_slurm_does_not_take_are_reported_in_one_line(
    shared_cluster: LocalCluster, spec: Path
) -> None:
    refused = subprocess.run(
        command(spec, shared_cluster, "--slurm-partition", "nowhere"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("osub: ")
    assert refused.stderr.count("\n") == 1
    assert "nowhere" in refused.stderr or "partition" in refused.stderr
