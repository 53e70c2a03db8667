"""The claims of chapter 7, judged on made results; every one of R1 to R28 has a verdict."""

from __future__ import annotations

import msgspec
import pytest

from analysis.claims import ClaimRow, ClaimVerdict
from osub.physical.claims_full import full_rows
from osub.physical.folder import Results
from osub.physical.found import claims, findings, verdict
from osub.physical.outcome import ReplayOutcome
from osub.physical.published import REAL_PLACES
from osub.physical.tables import all_tables, mean_text, share_text
from tests.unit.osub.physical.made import day_trace, first_trace, full_size, outcome, results, small_plan


def judged(found: Results) -> dict[str, ClaimRow]:
    return {row.id: row for row in claims(found)}


def test_every_claim_of_the_chapter_has_a_row_and_rows_are_in_order() -> None:
    numbers = [int(row.id.split()[0][1:]) for row in claims(results())]
    assert set(numbers) == set(range(1, 29))
    assert numbers == sorted(numbers)
    assert len({row.id for row in claims(results())}) == len(numbers)


def test_what_cannot_be_compared_says_why() -> None:
    rows = [row for row in claims(results()) if row.verdict is ClaimVerdict.NOT_COMPARABLE]
    assert rows
    assert all(row.note for row in rows)


@pytest.mark.parametrize("claim", ["R1", "R2", "R3", "R5", "R8", "R14", "R28"])
def test_directions_hold_where_every_trial_has_them(claim: str) -> None:
    assert judged(results())[claim].verdict is ClaimVerdict.HOLDS


def test_gang_scheduling_that_loses_more_than_naive_fails_the_claim() -> None:
    pairs = dict(results().pairs)
    pairs["sq-m2-naive"], pairs["sq-m2-gangd"] = pairs["sq-m2-gangd"], pairs["sq-m2-naive"]
    assert judged(results(pairs=pairs))["R3"].verdict is ClaimVerdict.FAILS


def test_sharing_that_lengthens_waits_fails_the_claim() -> None:
    real = dict(results().real)
    real["sq-m1"], real["sq-m2-naive"] = real["sq-m2-naive"], real["sq-m1"]
    real["sq-m2-gangd"] = real["sq-m2-naive"]
    assert judged(results(real=real))["R8"].verdict is ClaimVerdict.FAILS


def test_one_trial_judges_no_direction() -> None:
    real = {key: dict(list(of.items())[:1]) for key, of in results().real.items()}
    assert judged(results(real=real))["R14"].verdict is ClaimVerdict.NOT_COMPARABLE


def test_a_job_that_failed_fails_the_last_claim() -> None:
    real = dict(results().real)
    real["mq-1"] = {("first", 1): outcome([("batch", 0.0)], failed=1)}
    row = judged(results(real=real))["R28"]
    assert (row.verdict, row.ours) == (ClaimVerdict.FAILS, "25 jobs completed, 1 did not")


def test_a_replay_with_jobs_that_did_not_complete_decides_nothing_else() -> None:
    real = {key: dict(of) for key, of in results().real.items()}
    real["sq-m1"] = {key: outcome([("batch", 0.0)], failed=9) for key in real["sq-m1"]}
    rows = judged(results(real=real))
    assert {rows[claim].verdict for claim in ("R4", "R5", "R8")} == {ClaimVerdict.NOT_COMPARABLE}
    assert rows["R28"].verdict is ClaimVerdict.FAILS
    said = verdict(results(real=real))
    assert not any("wait is" in line for line in said)
    assert any("27 jobs did not complete" in line for line in said)


def test_places_on_slurm_are_held_against_those_of_the_simulation() -> None:
    row = judged(results(places=REAL_PLACES))["R22"]
    assert (row.verdict, row.ours) == (ClaimVerdict.HOLDS, "13 of 15")
    assert "2849, 2854 (thesis: 2849, 2854)" in row.note
    assert judged(results(places=None))["R22"].verdict is ClaimVerdict.NOT_COMPARABLE


def test_a_study_without_any_replay_is_reported_all_the_same() -> None:
    empty = results(real={}, simulated={}, pairs={}, places=None)
    assert len({row.id.split()[0] for row in claims(empty)}) == 28
    here = [row for row in claims(empty) if "sim" not in row.id]
    assert {row.verdict for row in here} == {ClaimVerdict.NOT_COMPARABLE}
    assert all_tables(empty, [("first", first_trace())])
    assert verdict(empty)


def test_percentiles_of_another_size_of_results_fail_on_the_thesis_s_own_size() -> None:
    rows = {row.id: row for row in full_rows(full_size())}
    assert rows["R22 sim"].verdict is ClaimVerdict.HOLDS
    assert rows["R5 sim"].verdict is ClaimVerdict.HOLDS
    assert rows["R11 sim"].verdict is ClaimVerdict.FAILS  # some seconds against the thesis's hours
    assert rows["R25 sim"].verdict is ClaimVerdict.FAILS


def test_the_verdict_says_when_the_host_was_disturbed() -> None:
    disturbed = results(unfit={"first-sq-m1-1": "others used 60% of its CPUs' time"})
    assert any("unfit to judge by" in line and "60%" in line for line in verdict(disturbed))
    assert not any("unfit" in line for line in verdict(results()))


@pytest.mark.slow
def test_findings_are_complete_and_can_be_written_as_json() -> None:
    found = findings(results(), first_trace(), day_trace())
    names = {table.name for table in found.tables}
    assert {f"Table 7.{number}" for number in (2, 4, 5, 6, 7, 8, 9)} <= names
    assert all(len(row) == len(table.columns) for table in found.tables for row in table.rows)
    drawn = [name for name, _ in found.figures()]
    for figure in ("7.1:", "7.5:", "7.6:", "7.7:", "7.8:", "7.9:", "7.10:", "7.11:"):
        assert any(f"Figure {figure}" in name for name in drawn), figure
    assert msgspec.json.encode([found.claims, found.tables, found.facts])


def test_more_nodes_have_more_splits_to_report_of() -> None:
    row = judged(results(small_plan(nodes=4)))["R7"]
    assert "MQ 1+3" in row.ours
    assert row.verdict is not ClaimVerdict.NOT_COMPARABLE or "replay" in row.note


def test_percentiles_count_jobs() -> None:
    one: ReplayOutcome = outcome([("batch", 0.0)] * 20, run_s=1.0)
    assert one.percentiles_s() == (18.0, 19.0, 20.0)


def test_a_share_stays_between_none_and_all_and_a_loss_does_not() -> None:
    assert share_text([0.1, 0.9]) == "50 [0, 100]%"
    assert share_text([0.5]) == "50%"
    assert share_text([]) == "-"
    assert mean_text([0.1, 0.9], percent=True).startswith("50 [-")
