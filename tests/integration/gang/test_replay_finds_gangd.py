"""A replay on a Slurm of which nothing but its configuration is known, and the gangd that serves it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.gang import status_folder
from foundation.records import load_run
from tests.integration.gang.stage import Stage

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

RUN_S, REQUEST_S = 3, 120
# Job, submit time, run time, processors, request: two that share both nodes.
TRACE = "".join(
    f"{number} {number - 1} -1 {RUN_S} 2 -1 -1 2 {REQUEST_S} -1 1 1 1 -1 1 -1 -1 -1\n" for number in (1, 2)
)


def replay(stage: Stage, folder: Path, gangd: str) -> subprocess.CompletedProcess[str]:
    """Replay from a place where only ``slurm.conf`` is, as on a host of a production cluster."""
    (conf := folder / "etc").mkdir(exist_ok=True)
    for path in Path(stage.cluster.conf).parent.glob("*.conf"):
        shutil.copy(path, conf)
    (trace := folder / "trace.swf").write_text(TRACE)
    words = [sys.executable, "-P", "-m", "osub.cli.main", "replay", str(trace), "--out", str(folder / "RUN")]
    parts = ["--partition", "night", "--interactive-partition", "night"]
    return subprocess.run(
        [*words, "--gangd", gangd, *parts],
        env={**os.environ, "SLURM_CONF": str(conf / "slurm.conf"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_limits_apply_and_slices_are_collected(stage: Stage, tmp_path: Path) -> None:
    stage.set_quantum(250)
    done = replay(stage, tmp_path, str(status_folder(stage.cluster.state().layout)))
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "RUN")
    assert (run.info.gang.kind, run.jobs["state"].to_list()) == ("osub", ["COMPLETED"] * 2)
    assert run.slices is not None
    # Each of the two ran in slices of its own while the other was held, on both nodes.
    for job in run.jobs["job_id"]:
        rows = run.slices.filter((run.slices["job"] == job) & (run.slices["role"] == "held"))
        assert rows["node"].n_unique() == 2
        assert len(rows) > 10


def test_without_gangd_limits_are_multiplied_and_a_wrong_folder_is_refused(
    stage: Stage, tmp_path: Path
) -> None:
    before = {job.job_id for job in stage.client.jobs().jobs}
    refused = replay(stage, tmp_path, str(tmp_path))
    assert refused.returncode == 1
    assert "does a gangd run there?" in refused.stderr
    assert {job.job_id for job in stage.client.jobs().jobs} <= before
    assert not (tmp_path / "RUN").exists()
    done = replay(stage, tmp_path, "none")
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "RUN")
    assert run.info.gang.kind == "none"
    assert run.slices is None
