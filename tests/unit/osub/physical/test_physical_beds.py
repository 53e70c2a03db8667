"""A cluster that the user's program changes, and those in containers: what goes wrong is reported."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from deploy.compose.engine import EngineName
from deploy.shape import Shape
from foundation.errors import ClusterError, UsageError
from osub.live.forward import AskedReplay
from osub.physical import cluster_provider
from osub.physical.cluster_provider import (
    ConfiguredBeds,
    Given,
    ObservedCluster,
    OwnBeds,
    SlurmBed,
    recognise,
)
from osub.physical.folder import StudyFolder
from osub.physical.layouts import DEDICATED, GANGD, NAIVE, SharingLayout
from tests.unit.osub.physical.test_physical_study import target_of


def program(tmp_path: Path, text: str) -> Path:
    (path := tmp_path / "configure").write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def looked(layout: SharingLayout | None, nodes: int = 4) -> ObservedCluster:
    class NoGang:
        remark = None
        settings = type("Settings", (), {"kind": "none"})

    return ObservedCluster(SlurmBed(None, NoGang(), pin=False), target_of(1, nodes=nodes), layout)  # type: ignore[arg-type]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, ObservedCluster]:
    """Return clusters by folder, which the provider finds."""
    known: dict[str, ObservedCluster] = {}
    monkeypatch.setattr(cluster_provider, "look_at", lambda folder: known[folder.name])
    return known


def test_the_program_gets_the_layout(tmp_path: Path, found: dict[str, ObservedCluster]) -> None:
    found["c"] = looked(NAIVE)
    message = program(tmp_path, f'echo "$1" >> {tmp_path}/calls')
    beds = ConfiguredBeds(tmp_path / "c", message, {NAIVE.key: NAIVE})
    with beds.bed(NAIVE.key) as bed:
        assert bed is found["c"].bed
    assert (tmp_path / "calls").read_text() == "sq-m2-naive\n"


def test_a_program_that_fails_is_reported_with_its_last_words(tmp_path: Path) -> None:
    beds = ConfiguredBeds(tmp_path, program(tmp_path, "echo no slurmctld >&2; exit 3"), {NAIVE.key: NAIVE})
    with pytest.raises(ClusterError, match="sq-m2-naive failed: no slurmctld"), beds.bed(NAIVE.key):
        pass


def test_a_program_that_cannot_be_run_is_reported(tmp_path: Path) -> None:
    beds = ConfiguredBeds(tmp_path, tmp_path / "none", {NAIVE.key: NAIVE})
    with pytest.raises(ClusterError, match="cannot run"), beds.bed(NAIVE.key):
        pass


def test_a_cluster_that_was_not_changed_is_not_used(
    tmp_path: Path, found: dict[str, ObservedCluster]
) -> None:
    found["c"] = looked(DEDICATED)
    beds = ConfiguredBeds(tmp_path / "c", program(tmp_path, "true"), {NAIVE.key: NAIVE})
    with pytest.raises(ClusterError, match="another layout: SQ M=1, not SQ M=2 naive"), beds.bed(NAIVE.key):
        pass


def given(*names: str) -> Given:
    return recognise([Path(name) for name in names], lambda _: None)


def test_clusters_are_used_in_the_layouts_that_they_have(found: dict[str, ObservedCluster]) -> None:
    found |= {"a": looked(GANGD), "b": looked(DEDICATED)}
    known = given("a", "b")
    assert [layout.key for layout in known.layouts] == [DEDICATED.key, GANGD.key]
    assert known.folders == {DEDICATED.key: Path("b"), GANGD.key: Path("a")}


@pytest.mark.parametrize(
    ("layouts", "why"),
    [
        ({"a": None}, "no layout of the study"),
        ({"a": NAIVE, "b": NAIVE}, "both have the layout"),
        ({"a": NAIVE}, "M=1 is given"),
    ],
)
def test_clusters_that_make_no_study_are_refused(
    found: dict[str, ObservedCluster], layouts: dict[str, SharingLayout | None], why: str
) -> None:
    found |= {name: looked(layout) for name, layout in layouts.items()}
    with pytest.raises(UsageError, match=why):
        given(*layouts)


def test_clusters_of_different_sizes_are_refused(found: dict[str, ObservedCluster]) -> None:
    found |= {"a": looked(DEDICATED), "b": looked(NAIVE, nodes=8)}
    with pytest.raises(UsageError, match="differ in size: N4C2, N8C2"):
        given("a", "b")


@pytest.mark.parametrize("code", [0, 1, 130])
def test_a_layout_in_containers_is_replayed_by_the_command_and_its_cluster_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    seen: list[object] = []

    class Cluster:
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def up(self, engine: EngineName, shape: Shape, _: object) -> None:
            seen.append((engine, shape.multiplicity))

        def down(self) -> None:
            seen.append("down")

    def forward(_: Path, _hear: object, inputs: object, out: Path, words: list[str]) -> int:
        assert inputs == (asked.swf, asked.apps)
        assert words[words.index("--trial") + 1] == "2"
        assert out == asked.out
        return code

    monkeypatch.setattr(cluster_provider, "ComposeCluster", Cluster)
    monkeypatch.setattr("osub.live.forward.forward_replay", forward)
    asked = AskedReplay(
        swf=tmp_path / "t.swf", apps=tmp_path / "t.csv", out=tmp_path / "run", title="t",
        label="t, trial 2", trial=2, most_s=60.0,
    )  # fmt: skip
    folder = StudyFolder(tmp_path / "study")
    beds = OwnBeds(2, 1, {NAIVE.key: NAIVE}, folder, EngineName.DOCKER, lambda _: nullcontext())
    ends = pytest.raises(ClusterError, match="exit code 1") if code == 1 else nullcontext()
    with ends, beds.bed(NAIVE.key) as bed:
        assert folder.cluster_folder() is not None
        assert bed.replay(asked, lambda *_: True) is (code == 0)
    assert seen == [(EngineName.DOCKER, 2), "down"]
    assert folder.cluster_folder() is None
