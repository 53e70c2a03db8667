"""`osub cluster list`: what runs is found without a list that could be wrong; forgers are not believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.local import LocalCluster
from deploy.local.members import MARK, ProcessFacts, all_facts
from deploy.local.state import live_clusters
from osub.cli.cluster import app
from osub.live.cluster import default_state

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]


def claiming(pid: int, user: int | None, name: str, folder: Path) -> ProcessFacts:
    return ProcessFacts(
        pid=pid, parent=1, start_ticks=1, user=user, name="slurmd", words=("slurmd",),
        environment=frozenset({f"{MARK}={name}", f"SLURM_CONF={folder}/slurm.conf"}),
        cgroups=("/",),
    )  # fmt: skip


def test_a_cluster_that_runs_is_listed_with_its_daemons(shared_cluster: LocalCluster) -> None:
    (own,) = [one for one in live_clusters() if one.folder == shared_cluster.folder]
    assert own.daemons == len(own.state.daemons) >= 4
    result = CliRunner().invoke(app, ["list", "--json"])
    assert result.exit_code == 0
    rows = {row["state"]: row for row in json.loads(result.output)}
    assert rows[str(shared_cluster.folder)]["system"] == own.state.shape.system
    assert str(shared_cluster.folder.name) in CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"}).output


def test_what_a_process_claims_is_checked(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    (own,) = [one for one in live_clusters() if one.folder == shared_cluster.folder]
    name, me = own.state.layout.cluster_name, os.geteuid()
    pid = own.state.daemons[0].pid
    assert live_clusters([claiming(pid, me, name, own.folder)])[0].daemons == 1
    forged = [
        claiming(pid, me + 1, name, own.folder),
        claiming(pid, None, name, own.folder),
        claiming(pid, me, "another", own.folder),
        claiming(pid, me, name, tmp_path),
        claiming(pid, me, name, Path("\x00")),
        claiming(2**30, me, name, own.folder),
    ]
    for one in forged:
        assert live_clusters([one]) == []
    assert all(one.folder != tmp_path for one in live_clusters([*forged, *all_facts()]))


def test_a_cluster_of_which_no_one_says_where_is_in_the_users_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/own")
    assert default_state() == Path("/var/own/osub/cluster")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/user")
    assert default_state() == Path("/home/user/.local/state/osub/cluster")
