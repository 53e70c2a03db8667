"""A sweep on a real Slurm: simulated and replayed points in one table, and a kill between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.fixtures.looks import until

pytestmark = [pytest.mark.slurm, pytest.mark.parallel, pytest.mark.long]

SWF = "".join(f"{number} {number} -1 1 1 -1 -1 1 60 -1 1 1 1 -1 1 -1 -1 -1\n" for number in range(1, 5))


def command(spec: Path) -> list[str]:
    out = str(spec.parent / "out")
    words = (
        "sweep", str(spec), "--out", out, "--workers", "1", "--json", "--html",
        str(spec.parent / "page.html"),
    )  # fmt: skip
    return [sys.executable, "-P", "-m", "osub.command", *words, "--force"]


def test_replays_of_two_shapes_next_to_simulations_survive_a_kill(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(f"; MaxProcs: 2\n{SWF}")
    (spec := tmp_path / "sweep.toml").write_text(
        '[base]\ntrace = "log.swf"\nsystem = "N2C1"\nvirtual = true\ninteractive_queue = -1\n'
        '[grid]\nkind = ["simulate", "replay"]\nmultiplicity = [1, 2]\n'
    )
    points = tmp_path / "out" / "points"
    begun = subprocess.Popen(command(spec), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        # both simulations and the first replay; the second's cluster comes up or runs
        until(lambda: len(list(points.glob("[0-9a-f]*.json"))) >= 3, 180, "no replay was done")
    finally:
        begun.send_signal(signal.SIGKILL)
        begun.communicate()
    kept = {path.name: path.stat().st_mtime_ns for path in points.glob("[0-9a-f]*.json")}
    again = subprocess.run(command(spec), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    facts = json.loads(again.stdout)
    assert (facts["points"], facts["known"], facts["failed"]) == (4, len(kept), 0)
    assert all((points / name).stat().st_mtime_ns == stamp for name, stamp in kept.items())
    table = pl.read_parquet(facts["table"])
    assert table["kind"].to_list() == ["simulate", "simulate", "replay", "replay"]
    replayed = table.filter(kind="replay")
    assert replayed["completed"].to_list() == [4, 4]
    assert replayed["wait_mean_s"].null_count() == replayed["degradation_mean"].null_count() == 0
    for run in replayed["run"]:
        assert (tmp_path / "out" / run / "jobs.parquet").is_file()
    assert not (tmp_path / "out" / "cluster").exists(), "the cluster went with the last replay"
    assert "replay" in (tmp_path / "page.html").read_text()
