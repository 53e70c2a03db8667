"""Two measurements of the same pairs are compared, pair by pair."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from foundation.errors import InputError
from osub.cli.predict.command import app
from predictor.dataset import PairKind, Pairs, write_pairs
from predictor.dataset.pairs_agreement import agreement_of
from tests.fixtures.pairs_made import made_pairs

RUNNER = CliRunner()


def moved(pairs: Pairs, by: np.ndarray) -> Pairs:
    """Return the pairs with each loss, and its interval, moved."""
    columns = [(pl.col(name) + pl.Series(by)).alias(name) for name in ("e_v", "e_v_low", "e_v_high")]
    return replace(pairs, pairs=pairs.pairs.with_columns(columns))


def test_the_same_measurement_agrees_with_itself() -> None:
    pairs = made_pairs(6)
    found = agreement_of(pairs, pairs, PairKind.TIMESLICE)
    assert found.pairs == 36
    assert {most: share.value for most, share in found.within.items()} == {0.05: 1.0, 0.1: 1.0}
    assert (found.bias.value, found.deviation, found.overlapping) == (0.0, 0.0, 1.0)
    assert found.rank_correlation == pytest.approx(1.0)


def test_a_shift_of_all_pairs_is_a_bias_and_no_change_of_order() -> None:
    pairs = made_pairs(6)
    found = agreement_of(pairs, moved(pairs, np.full(36, 0.07)), PairKind.TIMESLICE)
    assert found.within[0.05].value == 0.0
    assert found.within[0.1].value == 1.0
    assert found.bias.value == pytest.approx(0.07)
    assert found.bias.low <= 0.07 <= found.bias.high
    assert found.rank_correlation == pytest.approx(1.0)
    assert found.overlapping == 0.0  # intervals are 0.04 wide


def test_shares_are_of_the_pairs_that_both_have_and_the_furthest_is_named() -> None:
    pairs = made_pairs(6)
    change = np.zeros(36)
    row = pairs.pairs.with_row_index().filter((pl.col("victim") == "app1") & (pl.col("opponent") == "app2"))[
        "index"
    ][0]
    change[row] = -0.3
    part = replace(pairs, pairs=pairs.pairs.filter(pl.col("opponent") != "app5"))
    found = agreement_of(moved(pairs, change), part, PairKind.TIMESLICE)
    assert (found.pairs, found.only_first, found.only_second) == (30, 6, 0)
    assert found.within[0.05].value == pytest.approx(29 / 30)
    assert found.within[0.05].low < found.within[0.05].value
    assert (found.furthest[0].victim, found.furthest[0].opponent) == ("app1", "app2")
    assert found.furthest[0].second - found.furthest[0].first == pytest.approx(0.3)


def test_noise_within_a_bound_is_counted_as_it_was_drawn() -> None:
    pairs = made_pairs(20)
    drawn = np.random.default_rng(3).normal(0.0, 0.05, 400)
    found = agreement_of(pairs, moved(pairs, drawn), PairKind.TIMESLICE)
    assert found.within[0.05].value == pytest.approx(float((np.abs(drawn) <= 0.05).mean()))
    assert found.within[0.05].low < 0.683 < found.within[0.05].high  # of a normal distribution
    assert found.deviation == pytest.approx(float(np.sqrt(np.mean(drawn**2))))


def test_no_pair_in_common_is_one_line() -> None:
    with pytest.raises(InputError, match="no pair of kind naive in common"):
        agreement_of(made_pairs(6), made_pairs(6), PairKind.NAIVE)


def test_the_command_compares_folders(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    pairs = made_pairs(6)
    write_pairs(one, pairs)
    write_pairs(other, moved(pairs, np.full(36, 0.02)))
    done = RUNNER.invoke(app, ["compare", str(one), str(other), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["warning"] is None
    kind = told["kinds"]["timeslice"]
    assert kind["within"]["0.05"]["value"] == 1.0
    assert kind["bias"]["value"] == pytest.approx(0.02)
    shown = RUNNER.invoke(app, ["compare", str(one), str(other), "--within", "0.01"])
    assert "within 0.01: 0% (0 to 0)" in shown.output
    # Against osub's own there is nothing in common but the kind.
    assert "no pair of kind timeslice in common" in str(RUNNER.invoke(app, ["compare", str(one)]).exception)


@pytest.mark.parametrize("words", [["--within", "wide"], ["--within", "-1"], ["--kind", "odd"]])
def test_what_cannot_be_compared_is_one_line(words: list[str], tmp_path: Path) -> None:
    write_pairs(tmp_path / "one", made_pairs(6))
    done = RUNNER.invoke(app, ["compare", str(tmp_path / "one"), str(tmp_path / "one"), *words])
    assert done.exit_code != 0
    assert "\n" not in str(done.exception)
