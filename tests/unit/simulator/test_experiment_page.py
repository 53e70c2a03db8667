"""The page of a study: what its figures stand on is beside the verdict."""

from __future__ import annotations

from pathlib import Path

from analysis.claims import Claim, ClaimRow, not_comparable
from simulator.experiment_page import ExperimentTable, write_page


def test_evidence_is_next_to_the_verdict_and_with_the_facts(tmp_path: Path) -> None:
    table = ExperimentTable(name="Table 1", title="Waits", columns=("", "thesis", "ours"), rows=(), notes=())
    facts = ["Three runs.", "Evidence: 2 of 3 replays are unfit to judge by."]
    write_page(tmp_path / "page.html", "A study", facts, [table], [])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    verdict = page[page.index('id="verdict"') : page.index('id="how"')]
    assert "2 of 3 replays are unfit to judge by." in verdict
    assert page.count("2 of 3 replays are unfit") == 2


def test_what_came_of_a_study_is_said_before_its_claims(tmp_path: Path) -> None:
    claim = Claim(id="R1", where="Table 1", setting="any", quantity="wait", paper="1 s")
    facts = ["Whole day: nobody waits.", "Evidence: 3 replays.", "How it was made."]
    row = ClaimRow.of(claim, not_comparable("other sizes"), "2 s")
    write_page(tmp_path / "page.html", "A study", facts, [], [], [row])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    said = [page.index(text) for text in ("nobody waits.", "3 replays.", "cannot be compared")]
    assert said == sorted(said)
    assert "How it was made." not in page[: page.index('id="claims"')]
