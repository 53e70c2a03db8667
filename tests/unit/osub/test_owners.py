"""Clusters and runs of other users, and runs that are in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foundation.errors import ClusterError, TrustError
from foundation.records import RunWriter, load_run
from osub.cli.main import run
from osub.live.cluster import find_cluster
from submitter.plan.replay_plan import batch_script
from tests.fixtures.cli import Cli
from tests.fixtures.records import make_info, make_trace
from tests.fixtures.replay_world import planned

OTHER = 61_234
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to another user")


def test_a_slurm_conf_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"has no slurm\.conf"):
        find_cluster(tmp_path)
    (conf := tmp_path / "slurm.conf").write_text("PluginDir=/tmp/evil\n")
    _, embedded = find_cluster(tmp_path)
    assert embedded is None
    conf.chmod(0o666)
    with pytest.raises(TrustError, match="others may write"):
        find_cluster(tmp_path)
    conf.chmod(0o644)
    (tmp_path / "real").mkdir()
    conf.rename(tmp_path / "real" / "slurm.conf")
    conf.symlink_to("real/slurm.conf")
    assert find_cluster(tmp_path)[1] is None
    (tmp_path / "real").chmod(0o777)
    with pytest.raises(TrustError, match="everybody who may write"):
        find_cluster(tmp_path)


def test_a_cluster_in_containers_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "compose.json").write_text("{}")
    with pytest.raises(ClusterError, match="--engine"):
        find_cluster(tmp_path)


@as_root
@pytest.mark.parametrize("whose", [".", "slurm.conf"])
def test_a_cluster_of_another_user_is_not_used(tmp_path: Path, whose: str) -> None:
    (tmp_path / "slurm.conf").touch()
    os.chown(tmp_path / whose, OTHER, -1)
    with pytest.raises(TrustError, match=f"user id {OTHER}"):
        find_cluster(tmp_path)


@as_root
def test_a_run_of_another_user_is_not_gone_on_with(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "RUN", make_info(), make_trace(tmp_path)).close()
    os.chown(tmp_path / "RUN", OTHER, -1)
    with pytest.raises(TrustError, match=f"user id {OTHER}"):
        RunWriter.reopen(tmp_path / "RUN")


@as_root
def test_root_makes_no_run_where_others_may_write(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(TrustError, match="everybody who may write"):
        RunWriter.create(tmp_path / "open" / "RUN", make_info(), trace)
    assert list((tmp_path / "open").iterdir()) == []


def test_a_line_end_in_a_path_is_no_command() -> None:
    script = batch_script(planned(), Path("/tmp/x\ntouch /tmp/evil\n"))
    comments = [line for line in script.splitlines() if line.startswith("#")]
    assert comments == ["#!/bin/sh", "# Job 1 of a replay"]
    assert "at='/tmp/x\ntouch /tmp/evil\n/jobs/1'" in script


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (path := tmp_path / "t.swf").write_text("1 0 -1 100 2 -1 -1 2 200 -1 1 1 1 -1 1 -1 -1 -1\n")
    return path


def words(trace: Path, out: Path, *more: str) -> list[str]:
    return ["simulate", str(trace), "--system", "N2C1", "--out", str(out), *more]


def test_a_finished_run_is_replaced_when_it_is_said(trace: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "run"
    assert run(words(trace, out, "--label", "old")) == 0
    said = cli(*words(trace, out, "--label", "new"), code=1).err
    assert "exists already" in said
    assert "--force" in said
    assert load_run(out).info.label == "old"
    assert run(words(trace, out, "--label", "new", "--force")) == 0
    assert load_run(out).info.label == "new"


def test_a_folder_that_is_no_run_stays(trace: Path, tmp_path: Path, cli: Cli) -> None:
    (out := tmp_path / "precious").mkdir()
    (out / "notes").write_text("mine")
    assert "exists already" in cli(*words(trace, out, "--force"), code=1).err
    assert (out / "notes").read_text() == "mine"


@pytest.mark.slow
def test_several_runs_are_replaced_each(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    several = words(trace, out, "--multiplicity", "1,2", "--json")
    assert run(several) == 0
    assert run([*several, "--force"]) == 0
    assert load_run(out / "m2").info.multiplicity == 2
