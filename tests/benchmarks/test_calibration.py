"""How near the batch jobs of the experimental trace come to their run times; prints a table, asserts no time.

Run it on a calm host, about ten minutes::

    pytest -m benchmark -s tests/benchmarks/test_calibration.py

The trace is UniLu-Gaia's window of the thesis, scaled to N12C12 (``osub trace scale``), its times divided by
``OSUB_CALIBRATION_SPEEDUP`` (default 600: run times of 0.1 to 24 s), sizes cut to the two cores of the
embedded cluster here. Applications are drawn as in the thesis. Each kind is calibrated, then every job
runs alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.local import Gang
from tests.fixtures.gang_trials import PYTHON, cluster_of, noise
from workloads.swf import read_swf, write_swf

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(2400)]

SHARED = Path(os.environ.get("OSUB_SHARED", Path(__file__).parents[3] / "shared"))
GAIA = SHARED / "traces" / "UniLu-Gaia-2014-1.swf.gz"
SPEEDUP = os.environ.get("OSUB_CALIBRATION_SPEEDUP", "600")
CORES = 2


def osub(*words: object, codes: tuple[int, ...] = (0,)) -> str:
    command = [*PYTHON, "-m", "osub.cli.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in codes, done.stderr
    return done.stdout


def experimental_trace(folder: Path) -> Path:
    """Scale the thesis's window, and cut sizes to this cluster's."""
    osub("trace", "scale", GAIA, "--out", folder / "n12.swf")
    scaled = read_swf(folder / "n12.swf")
    jobs = [
        replace(job, allocated_procs=min(job.procs or 1, CORES), requested_procs=None) for job in scaled.jobs
    ]
    path = folder / "trace.swf"
    write_swf(path, scaled.with_jobs(jobs, f"sizes cut to {CORES} cores"))
    return path


def test_every_batch_job_of_the_experimental_trace() -> None:
    if not GAIA.exists():
        pytest.skip(f"no trace {GAIA}")
    with (
        tempfile.TemporaryDirectory(prefix="osub-bench-") as name,
        cluster_of(Gang.NONE, 1) as cluster,
        noise() as host,
    ):
        folder = Path(name)
        trace, apps, stored = experimental_trace(folder), folder / "apps.csv", folder / "steps.json"
        osub("workloads", "assign", trace, "--out", apps, "--speedup", SPEEDUP)
        said = ["--cluster", cluster.folder, "--calibration", stored, "--trace", trace]
        said += ["--apps", apps, "--speedup", SPEEDUP, "--json"]
        began_s = time.monotonic()
        kinds = json.loads(osub("workloads", "calibrate", *said))
        calibrated_s = time.monotonic()
        found = json.loads(osub("workloads", "check", *said, codes=(0, 1)))
        ended_s = time.monotonic()
    show(found["jobs"])
    unclipped = [job for job in found["jobs"] if not job["clipped"]]
    print(
        f"\n{found['near']} of {len(unclipped)} within 5% or 0.5 s, {found['clipped']} clipped; "
        f"calibrated in {calibrated_s - began_s:.0f} s, checked in {ended_s - calibrated_s:.0f} s; {host}"
    )
    for kind in kinds if isinstance(kinds, list) else kinds.get("kinds", []):
        print(json.dumps(kind))
    print(*found["warnings"], sep="\n", file=sys.stderr)
    assert len(unclipped) > len(found["jobs"]) // 2


def show(jobs: list[dict[str, Any]]) -> None:
    print(
        "\n| job | application | ranks | target, s | measured, s | error, s | error |\n" + "| --- " * 7 + "|"
    )
    for job in jobs:
        error = "clipped" if job["clipped"] else f"{job['error_s'] / job['target_s']:+.1%}"
        print(
            f"| {job['job']} | {job['name']} | {job['ranks']} | {job['target_s']:.2f} "
            f"| {job['measured_s']:.2f} | {job['error_s']:+.2f} | {error} |"
        )
