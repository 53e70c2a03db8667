"""A cluster that the user's program changes: what goes wrong is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import ClusterError, UsageError
from osub.physical import beds as rooms
from osub.physical.beds import Bed, ConfiguredBeds, Given, Looked, recognise
from osub.physical.layouts import DEDICATED, GANGD, NAIVE, Layout
from tests.unit.osub.physical.test_physical_study import target_of


def program(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "configure"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def looked(layout: Layout | None, nodes: int = 4) -> Looked:
    class NoGang:
        remark = None
        settings = type("Settings", (), {"kind": "none"})

    return Looked(Bed(None, NoGang(), pin=False), target_of(1, nodes=nodes), layout)  # type: ignore[arg-type]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Looked]:
    """Return clusters by folder, which the room finds."""
    known: dict[str, Looked] = {}
    monkeypatch.setattr(rooms, "look_at", lambda folder: known[folder.name])
    return known


def test_the_program_is_told_the_layout(tmp_path: Path, found: dict[str, Looked]) -> None:
    found["c"] = looked(NAIVE)
    told = program(tmp_path, f'echo "$1" >> {tmp_path}/told')
    beds = ConfiguredBeds(tmp_path / "c", told, {NAIVE.key: NAIVE})
    with beds.bed(NAIVE.key) as bed:
        assert bed is found["c"].bed
    assert (tmp_path / "told").read_text() == "sq-m2-naive\n"


def test_a_program_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    beds = ConfiguredBeds(tmp_path, program(tmp_path, "echo no slurmctld >&2; exit 3"), {NAIVE.key: NAIVE})
    with pytest.raises(ClusterError, match="sq-m2-naive failed: no slurmctld"), beds.bed(NAIVE.key):
        pass


def test_a_program_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    beds = ConfiguredBeds(tmp_path, tmp_path / "none", {NAIVE.key: NAIVE})
    with pytest.raises(ClusterError, match="cannot run"), beds.bed(NAIVE.key):
        pass


def test_a_cluster_that_was_not_changed_is_not_used(tmp_path: Path, found: dict[str, Looked]) -> None:
    found["c"] = looked(DEDICATED)
    beds = ConfiguredBeds(tmp_path / "c", program(tmp_path, "true"), {NAIVE.key: NAIVE})
    with pytest.raises(ClusterError, match="another layout: SQ M=1, not SQ M=2 naive"), beds.bed(NAIVE.key):
        pass


def given(*names: str) -> Given:
    return recognise([Path(name) for name in names], lambda _: None)


def test_clusters_are_used_in_the_layouts_that_they_have(found: dict[str, Looked]) -> None:
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
    found: dict[str, Looked], layouts: dict[str, Layout | None], why: str
) -> None:
    found |= {name: looked(layout) for name, layout in layouts.items()}
    with pytest.raises(UsageError, match=why):
        given(*layouts)


def test_clusters_of_different_sizes_are_refused(found: dict[str, Looked]) -> None:
    found |= {"a": looked(DEDICATED), "b": looked(NAIVE, nodes=8)}
    with pytest.raises(UsageError, match="differ in size: N4C2, N8C2"):
        given("a", "b")
