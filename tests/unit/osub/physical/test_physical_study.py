"""The study as a user asks for it: budgets, other studies, wrong traces, clusters by their layout."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.claims import ClaimVerdict
from deploy.compose.engine import EngineName
from deploy.local import GangKind, QueueKind
from foundation.errors import InputError, UsageError
from foundation.records import GangSettings
from foundation.units import seconds_of
from osub.cli.main import run
from osub.physical.folder import KeptStudy, StudyFolder
from osub.physical.layouts import GANGD, NAIVE, SLURM_GANG, layout_found, layouts_of
from osub.physical.study import PhysicalStudy, RequestedStudy
from submitter.plan.target_cluster import PartitionPool, TargetCluster
from tests.fixtures.golden import small
from workloads.swf import SwfHeader, SwfJob, SwfTrace, write_swf

Osub = Callable[..., subprocess.CompletedProcess[str]]
LOG = small("UniLu-Gaia-2014-1.swf.gz")


def asked(tmp_path: Path, trace: Path = LOG, **more: object) -> RequestedStudy:
    return RequestedStudy(**({"trace": trace, "out": tmp_path / "out", "nodes": 2, "cores": 1} | more))  # type: ignore[arg-type]


@pytest.fixture(name="osub")
def _osub(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``osub experiment thesis-7`` in this process, in an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        code = run(["experiment", "thesis-7", *words])
        return subprocess.CompletedProcess(words, code, *capsys.readouterr())

    return call


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("2h", 7200), ("90s", 90), ("1800", 1800), (" 1.5H ", 5400)]
)
def test_a_budget_is_a_time(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "30x", "-5m", "0", "nan", "inf", "1e99h", "30 minutes", "8d"])
def test_what_is_no_time_is_no_budget(text: str) -> None:
    with pytest.raises(UsageError, match="--budget"):
        seconds_of(text)


def test_a_missing_log_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="osub trace fetch UniLu-Gaia-2014-1"):
        PhysicalStudy(asked(tmp_path, tmp_path / "none.swf.gz"))


def test_another_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.swf.gz"
    write_swf(path, SwfTrace(SwfHeader(()), (SwfJob(job_number=2814, submit_s=1_212_255.0, run_s=5.0),), "o"))
    with pytest.raises(InputError, match="other is not UniLu-Gaia-2014-1"):
        PhysicalStudy(asked(tmp_path, path))


@pytest.mark.slow
def test_preparing_writes_nothing(tmp_path: Path) -> None:
    prepared = PhysicalStudy(asked(tmp_path)).prepare()
    assert prepared.is_new
    assert prepared.left_s == prepared.plan.estimate_s <= 1800
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_study_in_the_folder_goes_on_with_its_own_plan(tmp_path: Path) -> None:
    first = PhysicalStudy(asked(tmp_path, budget_s=900.0))
    plan = first.prepare().plan
    begin(tmp_path, plan_of=first)
    later = PhysicalStudy(asked(tmp_path)).prepare()
    assert not later.is_new
    assert later.plan == plan
    assert PhysicalStudy(asked(tmp_path, budget_s=900.0)).prepare().plan == plan


@pytest.mark.slow
def test_other_options_than_the_study_was_begun_with_are_refused(tmp_path: Path) -> None:
    begin(tmp_path, plan_of=PhysicalStudy(asked(tmp_path, budget_s=900.0)))
    with pytest.raises(UsageError, match=r"planned otherwise.*--force"):
        PhysicalStudy(asked(tmp_path, budget_s=3600.0)).prepare()
    assert PhysicalStudy(asked(tmp_path, budget_s=3600.0), force=True).prepare().is_new


@pytest.mark.slow
def test_a_study_goes_on_with_the_engine_that_it_was_begun_with(tmp_path: Path) -> None:
    docker = asked(tmp_path, budget_s=1800.0, engine=EngineName.DOCKER)
    plan = PhysicalStudy(docker).prepare().plan
    StudyFolder(tmp_path / "out").begin(
        KeptStudy(plan=plan, trace_name="log", trace_sha256=PhysicalStudy(docker).sha256, engine="docker")
    )
    assert PhysicalStudy(asked(tmp_path, budget_s=1800.0)).prepare().plan == plan
    with pytest.raises(UsageError, match=r"on docker clusters.*--force"):
        PhysicalStudy(asked(tmp_path, engine=EngineName.PODMAN)).prepare()


@pytest.mark.slow
def test_what_is_there_can_be_judged_and_nothing_is_no_study(tmp_path: Path) -> None:
    study = PhysicalStudy(asked(tmp_path))
    with pytest.raises(UsageError, match="holds no study"):
        study.judge()
    begin(tmp_path, plan_of=study)
    found = study.judge()
    assert len({row.id.split()[0] for row in found.claims}) == 28
    assert any(row.id == "R25 sim" and row.verdict is ClaimVerdict.HOLDS for row in found.claims)


@pytest.mark.slow
def test_a_study_of_another_file_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, plan_of=PhysicalStudy(asked(tmp_path)), sha256="0")
    with pytest.raises(InputError, match="a study of another file"):
        PhysicalStudy(asked(tmp_path)).prepare()


def begin(tmp_path: Path, *, plan_of: PhysicalStudy, sha256: str | None = None) -> None:
    """Begin a study without any replay."""
    plan = plan_of.prepare().plan
    known = KeptStudy(plan=plan, trace_name="log", trace_sha256=sha256 or plan_of.sha256)
    StudyFolder(tmp_path / "out").begin(known)


@pytest.mark.slow
def test_the_command_shows_its_plan_and_runs_nothing(osub: Osub, tmp_path: Path) -> None:
    done = osub(str(LOG), "--dry-run", "--json", "--budget", "1h")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["rounds"] >= 3
    assert plan["estimate_s"] <= 3600
    assert "For the budget" in osub(str(LOG), "--dry-run").stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_s_errors_are_one_line_that_says_what_to_do(osub: Osub, tmp_path: Path) -> None:
    missing = osub()
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "osub trace fetch" in missing.stderr
    wrong = osub("x.swf.gz", "--budget", "soon")
    assert wrong.returncode == 2
    assert "is no time to spend" in wrong.stderr
    (page := tmp_path / "page.html").write_text("mine")
    assert (osub("x.swf.gz", "--html", str(page)).returncode, page.read_text()) == (1, "mine")


def target_of(multiplicity: int, interactive_nodes: int | None = None, nodes: int = 4) -> TargetCluster:
    names = tuple(f"n{number}" for number in range(nodes))
    pool = PartitionPool(
        partition="batch", names=names, cores=2, threads=1, memory_mib=1000, multiplicity=multiplicity
    )
    if interactive_nodes is None:
        return TargetCluster(node_names=names, cores=2, batch=pool, interactive=pool)
    apart = replace(pool, partition="interactive", names=names[:interactive_nodes], multiplicity=4)
    return TargetCluster(
        node_names=names, cores=2, batch=replace(pool, names=names[interactive_nodes:]), interactive=apart
    )


def test_every_layout_is_recognised_by_the_cluster_that_has_it() -> None:
    kinds = {GangKind.NONE: "none", GangKind.SLURM: "slurm", GangKind.OSUB: "osub"}
    for layout in layouts_of(4):
        target = target_of(layout.multiplicity, layout.interactive_nodes)
        assert layout_found(target, GangSettings(kind=kinds[layout.gang])) == layout  # type: ignore[arg-type]


def test_a_cluster_of_no_layout_is_not_recognised() -> None:
    assert layout_found(target_of(3), GangSettings()) is None
    assert layout_found(target_of(1), GangSettings(kind="osub")) is None
    assert layout_found(target_of(2, interactive_nodes=1), GangSettings()) is None


def test_shapes_of_embedded_clusters_are_those_of_the_layouts() -> None:
    shapes = {layout.key: layout.shape(4, 2) for layout in layouts_of(4)}
    assert shapes[NAIVE.key].gang is GangKind.NONE
    assert shapes[GANGD.key].gang is GangKind.OSUB
    assert shapes[SLURM_GANG.key].settings == ("SchedulerTimeSlice=5",)
    assert (shapes["mq-3"].queues, shapes["mq-3"].interactive_nodes) == (QueueKind.MQ, 3)
    assert {shape.system for shape in shapes.values()} == {"N4C2"}
