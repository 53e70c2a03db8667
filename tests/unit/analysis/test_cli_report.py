from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from osub.cli.main import run
from tests.fixtures.example_runs import example_run

pytestmark = pytest.mark.slow
Said = subprocess.CompletedProcess[str]
Osub = Callable[..., Said]


@pytest.fixture(name="osub")
def _osub(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Osub:
    """``osub report`` in this process."""
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: object) -> Said:
        words = ["report", *map(str, arguments)]
        return Said(words, run(words), *capsys.readouterr())

    return call


@pytest.fixture(name="runs", scope="module")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        example_run(folder / "a", "alone", jobs=8, label="one"),
        example_run(folder / "b", "gang", jobs=8, label="one"),
    ]


def test_runs_are_columns_of_a_table_and_a_page_is_written(runs: list[Path], tmp_path: Path) -> None:
    """As a process of its own, with next to no environment."""
    page = tmp_path / "new" / "report.html"
    program = "import sys; from osub.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "report", *map(str, runs), "--html", str(page)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "COLUMNS": "100", "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stderr
    assert "one (a)" in done.stdout
    assert "one (b)" in done.stdout
    assert "makespan [s]" in done.stdout
    assert f"Report: {page}" in done.stdout
    assert 1e6 < page.stat().st_size < 2.2e6


def test_metrics_are_machine_readable(osub: Osub, runs: list[Path]) -> None:
    metrics = json.loads(osub(*runs, "--json", "--wait-threshold", "1").stdout)
    assert [run["label"] for run in metrics] == ["one (a)", "one (b)"]
    assert (metrics[0]["kinds"]["all"]["jobs"], metrics[0]["options"]["wait_threshold_s"]) == (8, 1)
    assert metrics[1]["slices"]["fairness"] is not None


def test_metrics_are_a_table_of_figures_that_is_not_overwritten(
    osub: Osub, runs: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / "metrics.csv"
    metrics = json.loads(osub(*runs, "--json", "--csv", target).stdout)
    header, *rows = csv.reader(target.read_text(encoding="utf-8").splitlines())
    assert header == ["figure", "one (a)", "one (b)"]
    figures = {name: values for name, *values in rows}
    assert [float(value) for value in figures["kinds.all.wait_s.mean"]] == [
        run["kinds"]["all"]["wait_s"]["mean"] for run in metrics
    ]
    assert figures["slices.fairness"][0] == "", "what is not known is empty"
    assert "label" not in figures
    assert osub(*runs, "--csv", target).returncode == 1
    assert osub(*runs, "--csv", target, "--force").returncode == 0


@pytest.mark.parametrize(
    ("what", "message"), [("nothing", "there is no such folder"), ("empty", "it has no run.json")]
)
def test_what_is_no_run_is_one_line_that_says_so(osub: Osub, tmp_path: Path, what: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    done = osub(tmp_path / what, "--html", tmp_path / "r.html")
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "r.html").exists()


def test_a_page_below_a_file_is_refused(osub: Osub, runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = osub(runs[0], "--html", tmp_path / "file" / "r.html")
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (1, 1)


def test_no_run_is_a_usage_error(osub: Osub) -> None:
    assert osub().returncode == 2


def test_a_page_that_exists_is_replaced_only_when_asked(osub: Osub, runs: list[Path], tmp_path: Path) -> None:
    (page := tmp_path / "page.html").write_text("mine")
    refused = osub(runs[0], "--html", page)
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert page.read_text() == "mine"
    assert osub(runs[0], "--html", page, "--force").returncode == 0
    assert "osub report" in page.read_text(encoding="utf-8")
