"""How near the batch jobs of the experimental trace come to their run times; prints a table, asserts no time.

Run it on a calm host, about twelve minutes::

    pytest -m benchmark -s tests/benchmarks/test_calibration.py

The trace is UniLu-Gaia's window of the thesis, scaled to N12C12 (``osub trace scale``), its times divided by
``OSUB_CALIBRATION_SPEEDUP`` (default 600: run times of 0.1 to 24 s), sizes cut to the two cores of the
embedded cluster here. Applications are drawn as in the thesis. One kind (application, ranks) after the other
is calibrated, its jobs run alone, and it is calibrated again: the host's pace drifts, and where it did
between the two calibrations, no stored step time could have met the targets. "At the mean pace" compares a
job with its own steps at the mean of both.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.local import Gang
from tests.fixtures.gang_trials import PYTHON, cluster_of, noise, say
from workloads.swf import SwfTrace, read_swf, write_swf

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(2400)]

SHARED = Path(os.environ.get("OSUB_SHARED", Path(__file__).parents[3] / "shared"))
GAIA = SHARED / "traces" / "UniLu-Gaia-2014-1.swf.gz"
NEAR_SHARE, NEAR_S = 0.05, 0.5
SPEEDUP = os.environ.get("OSUB_CALIBRATION_SPEEDUP", "600")
CORES = 2
TARGET = re.compile(r" *--target-s \S+")


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


@dataclass(frozen=True, slots=True)
class Pace:
    """What a calibration found of a kind, in seconds."""

    step_s: float
    overhead_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """A job: its target, what it took, and what its steps take at the mean pace of two calibrations."""

    job: int
    name: str
    ranks: int
    target_s: float
    measured_s: float
    mean_s: float
    drift: float
    clipped: bool

    @property
    def is_near(self) -> bool:
        """Whether it met its target."""
        return _near(self.measured_s, self.target_s)

    @property
    def is_near_at_mean(self) -> bool:
        """Whether it took what its steps take at the mean pace."""
        return _near(self.measured_s, self.mean_s)


def _near(measured_s: float, wanted_s: float) -> bool:
    return abs(measured_s - wanted_s) <= max(NEAR_S, NEAR_SHARE * wanted_s)


def kinds_of(trace: SwfTrace, apps: Path) -> dict[tuple[str, int], list[int]]:
    """Batch jobs by application (with its class, if the table names one) and ranks."""
    with apps.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["app"] == "rrba"]
    words = {int(row["trace_job"]): TARGET.sub("", row["args"]) for row in rows}
    kinds: dict[tuple[str, int], list[int]] = {}
    for job in trace.jobs:
        if job.job_number in words:
            kinds.setdefault((words[job.job_number], job.procs or 1), []).append(job.job_number)
    return kinds


def test_every_batch_job_of_the_experimental_trace() -> None:
    if not GAIA.exists():
        pytest.skip(f"no trace {GAIA}")
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="osub-bench-") as name,
        cluster_of(Gang.NONE, 1) as cluster,
        noise() as host,
    ):
        folder = Path(name)
        trace, apps = experimental_trace(folder), folder / "apps.csv"
        osub("workloads", "assign", trace, "--out", apps, "--speedup", SPEEDUP)
        began_s = time.monotonic()
        whole = read_swf(trace)
        for kind, numbers in sorted(kinds_of(whole, apps).items()):
            part, part_apps = part_of(whole, apps, numbers, folder)
            what = ["--trace", part, "--apps", part_apps, "--speedup", SPEEDUP]
            rows += of_one_kind(folder, what, cluster.folder)
            say(f"{kind[0]} on {kind[1]} ranks: {len(numbers)} jobs")
        lasted_s = time.monotonic() - began_s
    show(rows)
    counted = [row for row in rows if not row.clipped]
    near, at_mean = sum(row.is_near for row in counted), sum(row.is_near_at_mean for row in counted)
    print(
        f"\n{near} of {len(counted)} within 5% or 0.5 s of their target, {at_mean} at the mean pace, "
        f"{len(rows) - len(counted)} clipped; {lasted_s:.0f} s; {host}"
    )
    assert len(counted) > len(rows) // 2


def part_of(whole: SwfTrace, apps: Path, numbers: list[int], folder: Path) -> tuple[Path, Path]:
    """Write some jobs of the trace, and their applications."""
    part, part_apps = folder / "part.swf", folder / "part.csv"
    write_swf(part, whole.with_jobs([job for job in whole.jobs if job.job_number in numbers], "one kind"))
    with apps.open(encoding="utf-8") as file:
        rows = csv.DictReader(file)
        kept = [row for row in rows if int(row["trace_job"]) in numbers]
    with part_apps.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, kept[0].keys())
        writer.writeheader()
        writer.writerows(kept)
    return part, part_apps


def of_one_kind(folder: Path, what: list[object], cluster: Path) -> list[Row]:
    """Calibrate, check every job, calibrate again."""
    said = ["--cluster", cluster, *what, "--json"]
    before = calibrated(folder / "before.json", said)
    found = json.loads(
        osub("workloads", "check", *said, "--calibration", folder / "before.json", codes=(0, 1))
    )
    after = calibrated(folder / "after.json", said)
    mean = Pace(*np.mean([(each.step_s, each.overhead_s) for each in (before, after)], axis=0).tolist())
    return [row_of(job, mean, after.step_s / before.step_s - 1) for job in found["jobs"]]


def calibrated(path: Path, said: list[object]) -> Pace:
    (row,) = json.loads(osub("workloads", "calibrate", *said, "--calibration", path))
    return Pace(row["step_ms"] / 1e3, row["overhead_s"])


def row_of(job: dict[str, Any], mean: Pace, drift: float) -> Row:
    mean_s = mean.overhead_s + job["steps"] * mean.step_s
    times = (job["target_s"], job["measured_s"], mean_s, drift)
    return Row(job["job"], job["name"], job["ranks"], *times, job["clipped"])


def show(rows: list[Row]) -> None:
    titles = ("job", "application", "ranks", "target, s", "measured, s", "error", "drift", "at the mean pace")
    print(f"\n| {' | '.join(titles)} |\n{'| --- ' * len(titles)}|")
    for row in rows:
        error, mean = (row.measured_s / wanted_s - 1 for wanted_s in (row.target_s, row.mean_s))
        errors = (
            f"clipped | {row.drift:+.1%} | "
            if row.clipped
            else f"{error:+.1%} | {row.drift:+.1%} | {mean:+.1%}"
        )
        print(
            f"| {row.job} | {row.name} | {row.ranks} | {row.target_s:.2f} | {row.measured_s:.2f} | {errors} |"
        )
