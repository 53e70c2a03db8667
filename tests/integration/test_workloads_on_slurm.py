"""Calibration on a real Slurm: lone jobs are sampled, a line is stored, and jobs plan their steps with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local import LocalCluster, Shape
from osub.cli.main import run
from workloads.rrba.steps.calibrations import load_calibrations, store_calibration

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

TARGET_S = 12  # far above the time to start up, which takes seconds on a busy host
SLOWER = 8


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> object:
    code = run([*words, "--json"])
    out, err = capsys.readouterr()
    assert code in (0, 1), err
    assert out, err
    answer: object = json.loads(out)
    return answer


def test_calibrated_jobs_are_checked_and_a_changed_host_is_noticed(
    make_cluster: Callable[[Shape], LocalCluster], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = make_cluster(Shape(nodes=1, cores=1, virtual=True))
    where = ("--cluster", str(cluster.folder), "--calibration", str(tmp_path / "steps.json"))
    # On whatever else this host does meanwhile.
    kinds = ("--app", "lu.S", "--sample-s", "0.5", "--least-share", "0.05", "--rounds", "2")
    rows = printed(capsys, "workloads", "calibrate", *where, *kinds)
    assert isinstance(rows, list)
    assert [(row["name"], row["ranks"], row["nodes"]) for row in rows] == [("lu.S", 1, 1)]
    [lu] = load_calibrations(tmp_path / "steps.json")
    assert (lu.key.app, lu.key.grid) == ("lu", "12x12x12")
    assert lu.step_s > 0

    trace, apps = tmp_path / "t.swf", tmp_path / "apps.csv"
    line = "{n} 0 -1 {run} 1 -1 -1 1 60 -1 1 1 1 -1 1 -1 -1 -1\n"
    trace.write_text(line.format(n=1, run=TARGET_S) + line.format(n=2, run=0.01))
    apps.write_text(f"trace_job,app,args\n1,rrba,--app lu --class S --target-s {TARGET_S}\n")
    # As if of another host.
    slower = replace(lu, step_s=SLOWER * lu.step_s)
    store_calibration(tmp_path / "steps.json", slower)
    answer = printed(capsys, "workloads", "check", *where, "--trace", str(trace), "--apps", str(apps))
    assert isinstance(answer, dict)
    by_job = {row["job"]: row for row in answer["jobs"]}
    assert answer["clipped"] == 1
    assert by_job[2]["clipped"]
    assert by_job[1]["calibration"] == str(tmp_path / "steps.json")
    assert by_job[1]["steps"] == round((TARGET_S - slower.overhead_s) / slower.step_s)
    assert any("calibrate anew" in warning for warning in answer["warnings"])
