"""A study of claims through ``osub experiment``: found by its entry, shown in terminal, page and JSON."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from analysis.claims import Claim, ClaimRow, direction, fact, not_comparable
from simulator.experiment_page import ExperimentTable
from simulator.experiments.claim_study import STUDIES, ClaimStudy, StudyFindings, StudyRequest, WorldFigure
from tests.fixtures.cli import Cli


def examine(request: StudyRequest) -> StudyFindings:
    step = request.steps(request.seeds)
    values = []
    for seed in range(request.seeds):
        step(f"seed {seed}")
        values.append(1 + seed / 100)
    said = Claim(id="X1", where="Table <b>1</b>", setting="[red]all", quantity="loss", paper="falls")
    other = Claim(id="X2", where="IV", setting="all", quantity="time", paper="12 ms")
    reason = not_comparable("another & older machine")
    rows = [ClaimRow.of(said, direction(values), unit="h"), ClaimRow.of(other, reason)]
    table = ExperimentTable(name="T 1", title="loss by hour", columns=("a",), rows=[("2 *",)], notes=("n",))
    quick = "quick" if request.quick else "whole"
    return StudyFindings(
        title="A study", facts=[quick, *map(str, request.traces)], claims=rows, tables=[table],
        figures=list, world=WORLD,
    )  # fmt: skip


WORLD: list[WorldFigure] = []


@pytest.mark.parametrize(("load", "verdict"), [(80.0, "fails"), (83.9, "fails"), (84.5, "not comparable")])
def test_a_claim_fails_only_in_a_world_like_the_papers(
    load: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Claim(id="X1", where="IV", setting="all", quantity="loss", paper="falls")
    found = StudyFindings(
        title="",
        facts=[],
        claims=[ClaimRow.of(claim, fact(holds=False)), ClaimRow.of(claim, fact(holds=True))],
        tables=[],
        figures=list,
        world=[WorldFigure("utilisation", 80, load, "%"), WorldFigure("nodes", 100, 100)],
    )
    monkeypatch.setattr(f"{__name__}.examine", lambda _: found)
    judged = STUDIES["made-up"].run(StudyRequest(traces=(), seeds=1, quick=True, steps=lambda _: print))
    assert [row.verdict.value for row in judged.claims] == [verdict, "holds"]
    assert [row[0] for row in judged.tables[0].rows] == ["utilisation", "nodes"]
    assert ("+6%" in judged.claims[0].note) is (verdict == "not comparable")


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    study = ClaimStudy(help="Tries the seam.", traces_help="any file.", module=__name__)
    monkeypatch.setitem(STUDIES, "made-up", study)


def test_a_study_is_one_entry(cli: Cli) -> None:
    shown = cli("experiment", "--help").out
    assert "made-up" in shown
    assert "thesis-5" in shown
    assert "any file." in cli("experiment", "made-up", "--help").out


def test_the_terminal_shows_texts_letter_by_letter(cli: Cli) -> None:
    out = cli("experiment", "made-up").out
    for text in ("Table <b>1</b>", "[red]all", "1.05 [1.02, 1.07] h", "holds", "another & older", "2 claims"):
        assert text in out
    assert "provisional" not in out


def test_few_seeds_are_provisional(cli: Cli) -> None:
    assert "3 seeds, fewer than 10" in cli("experiment", "made-up", "--quick").out
    assert "provisional" in cli("experiment", "made-up", "--seeds", "9").out


def test_the_page_escapes_texts_and_has_every_claim(tmp_path: Path, cli: Cli) -> None:
    page = tmp_path / "page.html"
    cli("experiment", "made-up", "some.swf", "--html", page)
    text = page.read_text()
    assert "Table &lt;b&gt;1&lt;/b&gt;" in text
    assert '<td class="muted">not comparable<small>another &amp; older machine' in text
    assert "some.swf" in text


def test_json_has_verdict_value_and_interval(cli: Cli) -> None:
    found = cli.json("experiment", "made-up", "--json", "--seeds", "4", "--quick")
    first, second = found["claims"]
    assert (found["study"], found["seeds"], found["facts"]) == ("made-up", 4, ["quick"])
    assert (first["id"], first["paper"], first["verdict"]) == ("X1", "falls", "holds")
    assert first["estimate"]["count"] == 4
    assert first["estimate"]["low"] < first["estimate"]["mean"] < first["estimate"]["high"]
    assert (second["verdict"], second["note"]) == ("not comparable", "another & older machine")


def test_more_traces_than_it_takes_are_refused(cli: Cli) -> None:
    cli.said("experiment", "made-up", "a.swf", "b.swf", code=2)


def test_a_page_that_cannot_be_written_is_reported(tmp_path: Path, cli: Cli) -> None:
    cli.said("experiment", "made-up", "--html", tmp_path / "no" / "page.html", code=1)


def test_listing_experiments_imports_nothing_that_computes() -> None:
    code = (
        "import sys; import simulator.experiments.claim_study;"
        "print(*({'numba', 'polars', 'plotly', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()
