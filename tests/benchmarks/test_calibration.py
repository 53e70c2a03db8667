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

import json
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from deploy.local import GangKind
from osub.live.alone import CheckRow, batch_jobs
from tests.fixtures.gang_trials import PYTHON, cluster_of, noise
from tests.fixtures.voice import say
from workloads.rrba.calibration_kinds import CalibrationKind
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


@dataclass(frozen=True, slots=True)
class Pace:
    """What a calibration found of a kind, in seconds."""

    step_s: float
    overhead_s: float

    def run_s(self, steps: int) -> float:
        """How long a job of so many steps takes."""
        return self.overhead_s + steps * self.step_s


@dataclass(frozen=True, slots=True)
class Row:
    """A job against its target, and against what its steps take at the mean pace of two calibrations."""

    checked: CheckRow
    at_mean: CheckRow
    drift: float


def test_every_batch_job_of_the_experimental_trace() -> None:
    if not GAIA.exists():
        pytest.skip(f"no trace {GAIA}")
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="osub-bench-") as name,
        cluster_of(GangKind.NONE, 1) as cluster,
        noise() as host,
    ):
        folder = Path(name)
        trace, apps = experimental_trace(folder), folder / "apps.csv"
        osub("workloads", "assign", trace, "--out", apps, "--speedup", SPEEDUP)
        began_s = time.monotonic()
        kinds: dict[CalibrationKind, set[int]] = {}
        for job, kind in batch_jobs(cluster.folder, trace, apps, float(SPEEDUP), 0):
            kinds.setdefault(kind, set()).add(job.trace_job)
        for kind, numbers in sorted(kinds.items()):
            part, part_apps = part_of(trace, apps, numbers, folder)
            what = ["--trace", part, "--apps", part_apps, "--speedup", SPEEDUP]
            rows += of_one_kind(folder, what, cluster.folder)
            say(f"{kind.name} on {kind.ranks} ranks: {len(numbers)} jobs")
        lasted_s = time.monotonic() - began_s
    show(rows)
    counted = [row for row in rows if not row.checked.clipped]
    near, at_mean = sum(row.checked.is_near for row in counted), sum(row.at_mean.is_near for row in counted)
    print(
        f"\n{near} of {len(counted)} within 5% or 0.5 s of their target, {at_mean} at the mean pace, "
        f"{len(rows) - len(counted)} clipped; {lasted_s:.0f} s; {host}"
    )
    assert len(counted) > len(rows) // 2


def part_of(trace: Path, apps: Path, numbers: set[int], folder: Path) -> tuple[Path, Path]:
    """Write some jobs of the trace, and their applications."""
    part, part_apps = folder / "part.swf", folder / "part.csv"
    whole = read_swf(trace)
    write_swf(part, whole.with_jobs([job for job in whole.jobs if job.job_number in numbers], "one kind"))
    titles, *lines = apps.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if int(line.partition(",")[0]) in numbers]
    part_apps.write_text("\n".join([titles, *kept, ""]), encoding="utf-8")
    return part, part_apps


def of_one_kind(folder: Path, what: list[object], cluster: Path) -> list[Row]:
    """Calibrate, check every job, calibrate again."""
    said = ["--cluster", cluster, *what, "--json"]
    before = calibrated(folder / "before.json", said)
    found = json.loads(
        osub("workloads", "check", *said, "--calibration", folder / "before.json", codes=(0, 1))
    )
    after = calibrated(folder / "after.json", said)
    drift = after.step_s / before.step_s - 1
    rows = []
    for checked in msgspec.convert(found["jobs"], list[CheckRow]):
        mean_s = statistics.mean(each.run_s(checked.steps) for each in (before, after))
        rows.append(Row(checked, replace(checked, target_s=mean_s), drift))
    return rows


def calibrated(path: Path, said: list[object]) -> Pace:
    (row,) = json.loads(osub("workloads", "calibrate", *said, "--calibration", path))
    return Pace(row["step_ms"] / 1e3, row["overhead_s"])


def show(rows: list[Row]) -> None:
    titles = ("job", "application", "ranks", "target, s", "measured, s", "error", "drift", "at the mean pace")
    print(f"\n| {' | '.join(titles)} |\n{'| --- ' * len(titles)}|")
    for row in rows:
        job = row.checked
        error, mean = (each.error_s / each.target_s for each in (job, row.at_mean))
        errors = (
            f"clipped | {row.drift:+.1%} | "
            if job.clipped
            else f"{error:+.1%} | {row.drift:+.1%} | {mean:+.1%}"
        )
        print(
            f"| {job.job} | {job.name} | {job.ranks} | {job.target_s:.2f} | {job.measured_s:.2f} | {errors} |"
        )
