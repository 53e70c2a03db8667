"""The simulator puts jobs where a real Slurm does, given the order in which they came and went."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from deploy.local import LocalCluster, Shape
from deploy.shape import Scheduler
from submitter.plan.replay_options import ReplayOptions
from submitter.replay.replay_loop import Replay
from tests.fixtures.slurm_decisions import SETTINGS, Places

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

JOBS = 70
# Sizes that the rule of equal parts can put on nodes of 12 cores.
SIZES = [size for size in range(1, 25) if size not in (13, 17, 19, 23)]


def write_jobs(folder: Path) -> tuple[Path, Path]:
    """Write a trace of short jobs that come faster than they go, and what they run: ``sleep``."""
    rng = random.Random(3)
    trace, apps = folder / "t.swf", folder / "apps.csv"
    lines, words = [], ["trace_job,app,args"]
    for number in range(1, JOBS + 1):
        run_s, size = rng.uniform(1, 3), rng.choice(SIZES)
        lines.append(
            f"{number} {number * 0.05:.2f} -1 {run_s:.2f} {size} -1 -1 {size} 60 -1 1 1 1 -1 1 -1 -1 -1\n"
        )
        words.append(f"{number},sleep,{run_s:.2f}")
    trace.write_text("".join(lines))
    apps.write_text("\n".join(words) + "\n")
    return trace, apps


def test_jobs_on_shared_cores_get_the_places_that_slurm_gives_them(
    make_cluster: Callable[[Shape], LocalCluster], tmp_path: Path
) -> None:
    shape = Shape(
        nodes=12, cores=12, virtual=True, multiplicity=3, scheduler=Scheduler.BUILTIN, settings=SETTINGS
    )
    cluster = make_cluster(shape)
    trace, apps = write_jobs(tmp_path)
    run, log = tmp_path / "run", tmp_path / "slurmctld.log"
    assert Replay.begin(trace, run, cluster.client(), ReplayOptions(memory=False), apps).run()
    shutil.copy(cluster.state().layout.logs / "slurmctld.log", log)
    done = subprocess.run(
        [sys.executable, "-m", "tests.fixtures.slurm_decisions", str(run), str(log)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OSUB_JIT": "0"},
    )
    assert done.returncode == 0, done.stderr
    places = msgspec.json.decode(done.stdout, type=Places)
    assert places.jobs == JOBS
    assert places.same_place >= 0.98 * JOBS
