"""Limits of jobs that share their time, and configurations that gangd warns of or refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import GangKind, LocalCluster, Shape
from foundation.errors import ClusterError
from foundation.slurm import SlurmJobState
from gangd.controller.controller_config import Config
from gangd.controller.examine_slurm import check_slurm
from tests.fixtures.looks import until
from tests.integration.gang.stage import SPIN, Stage, gangd

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

Make = Callable[[Shape], LocalCluster]
RUN_S = 8
LIMIT_S = 11
# Counts the time in which it runs: a longer gap between two looks is a freeze.
WORK = """
import sys, time
left, last = float(sys.argv[1]), time.monotonic()
while left > 0:
    now = time.monotonic()
    left, last = left - min(now - last, 0.05), now
"""


def test_job_with_a_limit_gets_its_run_time_at_half_duty(stage: Stage, tmp_path: Path) -> None:
    stage.set_quantum(250)
    node, program = stage.nodes[0], tmp_path / "work.py"
    program.write_text(WORK)
    rival = stage.start(SPIN, node)
    job = stage.start(f"exec {sys.executable} {program} {RUN_S}", node, options=("-t", "2"))
    started = stage.job(job).start_time
    assert started is not None
    end = started + LIMIT_S
    assert stage.client.move_ends({job: end}) == {}

    def moved() -> bool:
        now = stage.job(job).end_time
        return now is not None and now > end

    until(moved, 60, "the job's end is moved by the time for which it is frozen")
    assert stage.finish(job, within_s=120) == [SlurmJobState.COMPLETED]
    ended = stage.job(job).end_time
    assert ended is not None
    assert ended > end, "half of the time was the other's"
    unlimited = stage.job(rival)
    assert (unlimited.state, unlimited.time_limit_s) == (SlurmJobState.RUNNING, None)


def test_cores_shared_without_memory_are_warned_of_and_long_freezes_refused(make_cluster: Make) -> None:
    settings = ("SelectTypeParameters=CR_Core", "MessageTimeout=8")
    shape = Shape(nodes=1, cores=1, virtual=True, multiplicity=2, settings=settings)
    client = make_cluster(shape).client()
    config, partitions = client.config(), client.partitions()
    short = Config(freeze_cap_ms=4000).settings()
    assert any("CR_Core_Memory" in warning for warning in check_slurm(config, partitions, short))
    with pytest.raises(ClusterError, match="MessageTimeout"):
        check_slurm(config, partitions, Config(freeze_cap_ms=4500).settings())


def test_gangd_refuses_to_start_next_to_slurms_own_gang_scheduler(make_cluster: Make, tmp_path: Path) -> None:
    cluster = make_cluster(Shape(nodes=1, cores=1, virtual=True, multiplicity=2, gang=GangKind.SLURM))
    words = gangd("run", "--slurm-conf", str(cluster.conf), "--state", str(tmp_path), "--keys", str(tmp_path))
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "PreemptMode" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
