"""One definition of a quantile: by hand, by numpy, by polars, by ``statistics``; there is no other."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.quantiles import quantile, quantiles

ROOT = Path(__file__).parents[3]
ROOMS = ["osub", "foundation", "analysis", "workloads", "submitter", "gangd", "simulator", "predictor"]


@pytest.mark.parametrize(
    ("share", "by_hand"),
    # ranks (5 - 1) p of 10, 20, 40, 70, 110: 0, 1, 2, 3.8, 3.96, 4
    [(0, 10), (0.25, 20), (0.5, 40), (0.95, 70 + 0.8 * 40), (0.99, 70 + 0.96 * 40), (1, 110)],
)
def test_a_quantile_is_on_the_line_between_its_ranks(share: float, by_hand: float) -> None:
    assert quantile([70.0, 10.0, 110.0, 40.0, 20.0], share) == pytest.approx(by_hand, rel=1e-15)


def test_the_middle_of_an_even_number_is_half_way() -> None:
    assert quantile([1, 2, 10, 40], 0.5) == 6


def test_what_is_not_known_is_not_counted_and_nothing_known_has_no_quantile() -> None:
    known = [3.0, 1.0, 2.0]
    for values in ([*known, None], pl.Series([*known, None]), np.array([*known, np.nan])):
        assert quantile(values, 0.25) == 1.5
    assert quantile(pl.Series([3, 1, None, 2]), 0.25) == 1.5
    for nothing in ([], [None], pl.Series([], dtype=pl.Float64)):
        assert quantile(nothing, 0.5) is None
    with pytest.raises(ValueError, match="no value"):
        quantiles([None], (0.5,))


@pytest.mark.parametrize("count", [1, 2, 7, 20, 1001])
def test_numpy_polars_and_statistics_say_the_same(count: int) -> None:
    drawn = np.random.default_rng(count).lognormal(size=count)
    shares = (0, 0.001, 0.05, 0.25, 0.5, 0.54, 0.9, 0.95, 0.99, 1)
    ours = quantiles(drawn, shares)
    assert ours == pytest.approx(np.percentile(drawn, [100 * share for share in shares]), rel=1e-12)
    assert ours == pytest.approx([pl.Series(drawn).quantile(share, "linear") for share in shares], rel=1e-12)
    assert ours[4] == pytest.approx(statistics.median(drawn), rel=1e-12)
    assert ours[4] == pytest.approx(pl.Series(drawn).median(), rel=1e-12)


@pytest.mark.slow
def test_no_other_definition_is_used() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in ROOMS
        for path in (ROOT / package).rglob("*.py")
        if path.relative_to(ROOT).as_posix() != "analysis/quantiles.py"
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Attribute)
        and node.attr in {"quantile", "percentile", "nanquantile", "nanpercentile", "quantiles"}
    ]
    assert found == [], "analysis.quantiles has the definition that all figures follow"
