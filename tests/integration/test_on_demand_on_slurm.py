"""An on-demand job on a real Slurm: a job gives its nodes, saves, and goes on when they come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.local import LocalCluster
from foundation.records import load_run
from tests.fixtures.cli import Cli

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

TRACE = """\
1 0 -1 8 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1
2 4 -1 2 1 -1 -1 1 60 -1 1 1 1 -1 1 -1 -1 -1
"""
KINDS = """\
trace_job,kind,checkpoint_every_s,checkpoint_s
1,rigid,1,0
2,ondemand,,
"""


def test_a_preempted_job_goes_on_from_its_checkpoint(
    shared_cluster: LocalCluster, tmp_path: Path, cli: Cli
) -> None:
    trace, kinds, out = tmp_path / "t.swf", tmp_path / "kinds.csv", tmp_path / "RUN"
    trace.write_text(TRACE)
    kinds.write_text(KINDS)
    words = ["--on-demand", "n-paa", "--set", f"jobs={kinds}", "--gangd", "none"]
    where = ["--cluster", str(shared_cluster.folder), "--out", str(out)]
    printed = cli("replay", trace, *where, *words).out
    assert "simulated" in printed
    rows = {row["trace_job"]: row for row in load_run(out).jobs.to_dicts()}
    assert [row["state"] for row in rows.values()] == ["COMPLETED", "COMPLETED"]
    assert rows[2]["kind"] == "ondemand"
    events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    preempted = [one["trace_job"] for one in events if one["kind"] == "preempted"]
    # On a host that is slow to start it the victim may have ended before the other job comes.
    if rows[1]["preemptions"]:
        assert preempted == [1]
        assert rows[1]["start_s"] >= rows[2]["end_s"] - 1
        assert rows[1]["wasted_s"] <= 1.5
    assert shared_cluster.client().reservations() == []
