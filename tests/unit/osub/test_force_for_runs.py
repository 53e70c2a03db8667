"""A RUN is replaced where ``--force`` is said, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.records import load_run
from osub.cli.main import run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.swf"
    path.write_text("1 0 -1 100 2 -1 -1 2 200 -1 1 1 1 -1 1 -1 -1 -1\n")
    return path


def words(trace: Path, out: Path, *more: str) -> list[str]:
    return ["simulate", str(trace), "--system", "N2C1", "--out", str(out), *more]


def test_a_finished_run_is_replaced_when_it_is_said(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(words(trace, out, "--label", "old")) == 0
    assert run(words(trace, out, "--label", "new")) == 1
    said = capsys.readouterr().err
    assert "exists already" in said
    assert "--force" in said
    assert load_run(out).info.label == "old"
    assert run(words(trace, out, "--label", "new", "--force")) == 0
    assert load_run(out).info.label == "new"


def test_a_folder_that_is_no_run_stays(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "precious"
    out.mkdir()
    (out / "notes").write_text("mine")
    assert run(words(trace, out, "--force")) == 1
    assert "exists already" in capsys.readouterr().err
    assert (out / "notes").read_text() == "mine"


def test_several_runs_are_replaced_each(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    several = words(trace, out, "--multiplicity", "1,2", "--json")
    assert run(several) == 0
    assert run([*several, "--force"]) == 0
    assert load_run(out / "m2").info.multiplicity == 2
