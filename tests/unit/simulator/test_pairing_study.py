"""The study of pairs: every claim once, verdicts that can go either way, and rules that differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from osub.claims import Verdict
from osub.cli.main import run
from predictor.dataset import Kind
from simulator.experiments.pairing.claims import rows
from simulator.experiments.pairing.effect import MEASURED, PREDICTED, RANDOM, RULES, TWINS, effects
from simulator.experiments.pairing.measured import Measured, family, look_at
from simulator.experiments.pairing.study import unseen_matrix
from simulator.pairing import PairTable, read_pair_table

IDS = [f"P{number}" for number in range(1, 20)]


@pytest.fixture(scope="module")
def found() -> Measured:
    return look_at()


def changed(found: Measured, **columns: pl.Expr) -> Measured:
    """Return the same with other losses."""
    return Measured(replace(found.pairs, pairs=found.pairs.pairs.with_columns(**columns)), found.report)


def verdicts(found: Measured) -> dict[str, Verdict]:
    return {row.id: row.verdict for row in rows(found)}


def test_every_claim_is_judged_once(found: Measured) -> None:
    assert [row.id for row in rows(found)] == IDS
    assert found.shared.height == 676
    assert found.of_kind(Kind.NAIVE).height == 64


def test_claims_follow_what_was_measured(found: Measured) -> None:
    assert verdicts(found)["P2"] is Verdict.HOLDS
    gentle = pl.when(pl.col("kind") == "naive").then(0.3 + 0.01 * pl.col("e_v")).otherwise(pl.col("e_v"))
    assert verdicts(changed(found, e_v=gentle))["P2"] is Verdict.FAILS
    alike = verdicts(changed(found, e_v=pl.lit(0.5), e_o=pl.lit(0.5)))
    assert alike["P7"] is Verdict.FAILS
    sleepy = pl.col("opponent").str.starts_with("mimic.")
    worse = pl.when(sleepy).then(pl.col("e_v") + 0.3).otherwise(pl.col("e_v"))
    better = pl.when(sleepy).then(pl.col("e_v") - 0.3).otherwise(pl.col("e_v"))
    assert verdicts(changed(found, e_v=worse))["P9"] is Verdict.HOLDS
    assert verdicts(changed(found, e_v=better))["P9"] is Verdict.FAILS
    batch = changed(
        found, victim=pl.col("victim").str.replace("mimic.", "nap-", literal=True), opponent=pl.lit("sort")
    )
    assert verdicts(batch)["P10"] is Verdict.NOT_COMPARABLE


def test_families_are_those_of_names() -> None:
    assert [family(name) for name in ("lu.W", "chase.2048K", "mimic.chase.768K", "sort")] == [
        "lu",
        "chase",
        "chase",
        "sort",
    ]


def test_who_knows_losses_keeps_the_harmful_apart(tmp_path: Path) -> None:
    """Two users, one whose program loses nearly all beside its like and nothing beside the other's."""
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
    made = effects(trace, "N2C4", table, loss, pairs, (1, 2), lambda _: None)
    assert set(made) == set(RULES)
    assert made[MEASURED] == made[PREDICTED]
    for at in range(2):
        assert made[MEASURED][at].mean_loss < made[RANDOM][at].mean_loss
        # Here twins are the harmful ones, so to know that is nearly as good.
        assert made[TWINS][at].mean_loss < made[RANDOM][at].mean_loss


def test_predictions_of_the_study_are_of_models_that_had_not_seen_the_victim(found: Measured) -> None:
    from predictor.data import FOLDER

    table = read_pair_table(FOLDER)
    matrix = unseen_matrix(found, table)
    assert matrix.shape == table.loss.shape
    records = found.report.records
    assert (matrix != 0.5).sum() <= len(records)
    name = records.features.applications
    victim, opponent = name[int(records.victim[0])], name[int(records.opponent[0])]
    place = table.applications.index
    assert matrix[place(victim), place(opponent)] == found.report.unseen.loss[0]


@pytest.mark.slow
def test_the_command_tells_claims_and_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert run(["experiment", "pairing", "--quick", "--seeds", "1", "--html", str(page), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in told["claims"]] == IDS
    assert "Losses of jobs by who shares with whom" in page.read_text()
