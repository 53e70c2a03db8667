"""Several multiplicities in one command: a RUN each, and one comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import UsageError
from foundation.records import load_run
from osub.cli.simulate import multiplicities
from tests.fixtures.cli import Cli


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.swf"
    lines = [f"{n} {n} -1 100 2 -1 -1 2 200 -1 1 1 1 -1 1 -1 -1 -1\n" for n in range(1, 9)]
    path.write_text("".join(lines))
    return path


@pytest.mark.slow
def test_each_multiplicity_has_a_run_and_they_are_compared(trace: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "runs"
    words = ["simulate", str(trace), "--system", "N2C1", "--multiplicity", "1,2", "--out", str(out), "--json"]
    document = cli.json(*words)
    assert document["runs"] == [str(out / "m1"), str(out / "m2")]
    assert [load_run(Path(path)).info.multiplicity for path in document["runs"]] == [1, 2]
    assert [finding["reference"] for finding in document["verdict"]["findings"]] == [
        document["metrics"][0]["label"]
    ]
    assert "exists already" in cli(*words, code=1).err


def test_people_get_the_verdict_first(trace: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "runs"
    words = ["simulate", str(trace), "--system", "N2C1", "--multiplicity", "1,2", "--out", str(out)]
    said = cli(*words, "--label", "mine").out
    assert said.startswith("Two jobs a core, assuming C_o = 1.2: ")
    assert "\nmine M=2 against mine M=1: " in said
    assert "osub compare" in said


def test_numbers_are_taken_once_and_others_refused() -> None:
    assert multiplicities("2, 1,2") == [2, 1]
    for word in ("", "1,", "a", "1;2", "-1", "1.5", "9" * 40):
        with pytest.raises(UsageError, match="--multiplicity"):
            multiplicities(word)
