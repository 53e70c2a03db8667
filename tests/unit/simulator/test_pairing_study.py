"""The study of pairs: every claim once, verdicts that can go either way, and rules that differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.claims import ClaimVerdict
from predictor.dataset import PAIRS, PairKind
from simulator.experiments import pairing_study
from simulator.experiments.pairing_claims import coupled_table, rows, world_of
from simulator.experiments.pairing_tables import Folds, MeasuredPairs, family, folds_of, look_at, tables
from simulator.pairing import PairTable, read_pair_table
from tests.fixtures.cli import Cli

pytestmark = pytest.mark.slow

IDS = [f"P{number}" for number in range(1, 20)]


@pytest.fixture(scope="module")
def found() -> MeasuredPairs:
    return look_at()


@pytest.fixture(scope="module")
def folds(found: MeasuredPairs) -> Folds:
    return folds_of(found)


def changed(found: MeasuredPairs, **columns: pl.Expr) -> MeasuredPairs:
    """Return the same with other losses."""
    return MeasuredPairs(replace(found.pairs, pairs=found.pairs.pairs.with_columns(**columns)), found.report)


NO_FOLDS = Folds((), (), (0, 0))


def verdicts(found: MeasuredPairs, folds: Folds = NO_FOLDS) -> dict[str, ClaimVerdict]:
    return {row.id: row.verdict for row in rows(found, folds)}


def test_every_claim_is_judged_once(found: MeasuredPairs, folds: Folds) -> None:
    assert [row.id for row in rows(found, folds)] == IDS
    assert verdicts(found, folds)["P16"] in {ClaimVerdict.HOLDS, ClaimVerdict.FAILS}
    assert verdicts(found)["P16"] is ClaimVerdict.NOT_COMPARABLE
    assert (found.shared.height, found.of_kind(PairKind.NAIVE).height) == (676, 64)


def test_the_world_of_serial_pairs_is_compared_with_the_thesis(found: MeasuredPairs) -> None:
    figures = {one.name: (one.paper, one.ours) for one in world_of(found)}
    assert figures["applications"] == (29, 26)
    assert figures["ordered pairs of batch programs"] == (800, found.batch().height)
    assert all("P16" in one.claims and "P2" not in one.claims for one in world_of(found))


def test_claims_follow_what_was_measured(found: MeasuredPairs) -> None:
    assert verdicts(found)["P2"] is ClaimVerdict.HOLDS
    gentle = pl.when(pl.col("kind") == "naive").then(0.3 + 0.01 * pl.col("e_v")).otherwise(pl.col("e_v"))
    assert verdicts(changed(found, e_v=gentle))["P2"] is ClaimVerdict.FAILS
    assert verdicts(changed(found, e_v=pl.lit(0.5), e_o=pl.lit(0.5)))["P7"] is ClaimVerdict.FAILS
    sleepy = pl.col("opponent").str.starts_with("mimic.")
    worse = pl.when(sleepy).then(pl.col("e_v") + 0.3).otherwise(pl.col("e_v"))
    better = pl.when(sleepy).then(pl.col("e_v") - 0.3).otherwise(pl.col("e_v"))
    assert verdicts(changed(found, e_v=worse))["P9"] is ClaimVerdict.HOLDS
    assert verdicts(changed(found, e_v=better))["P9"] is ClaimVerdict.FAILS
    batch = changed(
        found, victim=pl.col("victim").str.replace("mimic.", "nap-", literal=True), opponent=pl.lit("sort")
    )
    assert verdicts(batch)["P10"] is ClaimVerdict.NOT_COMPARABLE


def with_kinds(found: MeasuredPairs, partial: float, naive: float, gang: float) -> MeasuredPairs:
    """Return the same with three kinds of pairs of two jobs of two ranks, which lose so much."""
    row = found.of_kind(PairKind.NAIVE).row(0, named=True)
    one, other = ("lu.W.2", "mg.W.2")
    noise = (0.0, 0.01, -0.01, 0.02)
    made = []
    for kind, loss in (("naive", naive), ("gang", gang)):
        for extra, (victim, opponent) in zip(
            noise, ((one, one), (one, other), (other, one), (other, other)), strict=True
        ):
            made.append({**row, "kind": kind, "victim": victim, "opponent": opponent, "e_v": loss + extra})
    for extra, (victim, opponent) in zip(
        noise, ((one, "lu.W"), (one, "sort"), (other, "lu.W"), (other, "sort")), strict=True
    ):
        made.append(
            {**row, "kind": "timeslice", "victim": victim, "opponent": opponent, "e_v": partial + extra}
        )
    rest = found.pairs.pairs.filter(
        ~pl.col("kind").is_in(["naive", "gang"]) & pl.col("victim").is_in(found.single)
    )
    made_frame = PAIRS.frame([{**each, "e_v_low": each["e_v"], "e_v_high": each["e_v"]} for each in made])
    return MeasuredPairs(replace(found.pairs, pairs=pl.concat((rest, made_frame))), found.report)


def test_jobs_of_several_ranks_are_judged_by_order_and_shown_next_to_the_thesis(found: MeasuredPairs) -> None:
    as_there = with_kinds(found, 0.5, 0.75, 0.51)
    assert [verdicts(as_there)[f"P{number}"] for number in (1, 2, 3)] == [ClaimVerdict.HOLDS] * 3
    otherwise = with_kinds(found, 0.9, 0.4, 0.6)
    assert [verdicts(otherwise)[f"P{number}"] for number in (1, 2, 3)] == [ClaimVerdict.FAILS] * 3
    shown = {row[0]: row[1:] for row in coupled_table(as_there).rows}
    assert shown["lu.W.2"] == ("2", "1%", "51%", "3%")
    assert shown["thesis: mg.C"] == ("8", "9%", "55%", "20%")
    none = MeasuredPairs(
        replace(found.pairs, pairs=found.pairs.pairs.filter(pl.col("victim").is_in(found.single))),
        found.report,
    )
    assert [verdicts(none)[f"P{number}"] for number in (1, 2, 3)] == [ClaimVerdict.NOT_COMPARABLE] * 3
    # The matrix of pairs on one core is of applications of one rank.
    assert as_there.shared.height == found.shared.height


def test_families_are_those_of_names() -> None:
    assert [family(name) for name in ("lu.W", "chase.2048K", "mimic.chase.768K", "sort")] == [
        "lu",
        "chase",
        "chase",
        "sort",
    ]


def test_who_knows_losses_keeps_the_harmful_apart(tmp_path: Path) -> None:
    """Two users, one whose program loses nearly all with its like and nothing with the other's."""
    loss = np.array([[0.9, 0.1], [0.1, 0.9]])
    table = PairTable(("lu.W", "sort"), loss)
    pairs = tmp_path / "pairs.csv"
    names = table.applications
    pairs.write_text(
        "victim,opponent,e_v\n"
        + "".join(f"{names[a]},{names[b]},{loss[a, b]}\n" for a in range(2) for b in range(2))
    )
    trace = tmp_path / "log.swf"
    # Eight cores, work for ten: who comes shares, and most often has a choice of cores.
    trace.write_text(
        "; MaxProcs: 8\n"
        + "".join(
            f"{n} {10 * n} -1 90 1 -1 -1 1 99 -1 1 {n % 5} 1 {n % 7} 1 -1 -1 -1\n" for n in range(1, 120)
        )
    )
    rules = pairing_study.rules_of(table, loss, gang=PairTable(names, np.full((2, 2), 0.1)))
    made = pairing_study.effects(trace, "N2C4", rules, pairs, (1, 2), lambda _: None)
    assert (made[pairing_study.MEASURED], made[pairing_study.APART]) == (
        made[pairing_study.PREDICTED],
        made[pairing_study.APART_PREDICTED],
    )
    for at in range(2):
        assert made[pairing_study.MEASURED][at].mean_loss < made[pairing_study.RANDOM][at].mean_loss
        # Here twins are the harmful ones, so to know that is nearly as good.
        assert made[pairing_study.TWINS][at].mean_loss < made[pairing_study.RANDOM][at].mean_loss
        # A job that never meets its like loses a tenth at most; in gang slices none loses more, either.
        assert made[pairing_study.APART][at].worst_loss <= 0.1 + 1e-3
        assert made[pairing_study.GANG][at].worst_loss <= 0.1 + 1e-3
        assert made[pairing_study.RANDOM][at].worst_loss > 0.8
    shown = pairing_study.effect_table("Effect", "of two", made)
    assert [row[0] for row in shown.rows] == list(made)
    assert any(
        note.startswith(f"{pairing_study.APART} against {pairing_study.RANDOM}: mean loss -")
        for note in shown.notes
    )


def test_tables_of_the_thesis_have_ours_next_to_them(found: MeasuredPairs, folds: Folds) -> None:
    made = {table.name: table for table in tables(found, folds)}
    assert list(made) == [f"Table 4.{number}" for number in (7, 8, 9, 10, 11)]
    assert made["Table 4.7"].rows[-1] == ("thesis", "800", "92%", "89%", "92%")
    assert sum(row[0].startswith("thesis: ") for row in made["Table 4.11"].rows) == 13
    wrong = [one for one in folds.fit if one.is_wrong()]
    assert len(made["Table 4.11"].rows) == 13 + len(wrong)
    assert not any("chase" in one.victim or "chase" in one.opponent for one in folds.fit)
    assert {one.fold for one in folds.all} == {1, 2, 3}
    assert len(folds.all) == len(found.report.records)


def test_predictions_of_the_study_are_of_models_that_had_not_seen_the_victim(found: MeasuredPairs) -> None:
    from predictor.data import FOLDER

    table = read_pair_table(FOLDER)
    matrix = pairing_study.unseen_matrix(found, table)
    assert matrix.shape == table.loss.shape
    records = found.report.records
    assert (matrix != 0.5).sum() <= len(records)
    name = records.features.applications
    victim, opponent = name[int(records.victim[0])], name[int(records.opponent[0])]
    place = table.applications.index
    assert matrix[place(victim), place(opponent)] == found.report.unseen.loss[0]


def test_the_command_reports_claims_and_effect(tmp_path: Path, cli: Cli) -> None:
    page = tmp_path / "page.html"
    document = cli.json("experiment", "pairing", "--quick", "--seeds", "1", "--html", page, "--json")
    assert [row["id"] for row in document["claims"]] == IDS
    assert [fact.startswith("Evidence: ") for fact in document["facts"][:4]] == [False, False, False, True]
    assert "fails" not in {row["verdict"] for row in document["claims"] if row["id"] == "P16"}
    assert "Losses of jobs by who shares with whom" in page.read_text()
