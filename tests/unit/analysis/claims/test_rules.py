"""The verdicts: what holds, fails, ties, and what cannot be compared."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.claims import (
    ClaimVerdict,
    best_of,
    direction,
    estimate,
    fact,
    figures,
    magnitude,
    no_difference,
    not_comparable,
    over_settings,
    student_t,
)
from tests.fixtures.tier import examples

UP = [1.0, 1.1, 0.9, 1.05]
DOWN = [-value for value in UP]
MIXED = [1.0, -1.0, 0.5, -0.4]


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        (UP, ClaimVerdict.HOLDS),
        (DOWN, ClaimVerdict.FAILS),
        (MIXED, ClaimVerdict.TIE),
        ([0.0, 0.0, 0.0], ClaimVerdict.TIE),
        ([0.1, 0.1, 0.1], ClaimVerdict.HOLDS),
        ([5.0], ClaimVerdict.NOT_COMPARABLE),
    ],
)
def test_a_direction_is_judged_by_its_interval(differences: list[float], verdict: ClaimVerdict) -> None:
    assert direction(differences).verdict is verdict


@examples(100)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=20))
def test_a_claim_and_its_opposite_never_both_hold(differences: list[float]) -> None:
    there, back = direction(differences).verdict, direction([-value for value in differences]).verdict
    opposite = {
        ClaimVerdict.HOLDS: ClaimVerdict.FAILS,
        ClaimVerdict.FAILS: ClaimVerdict.HOLDS,
        ClaimVerdict.TIE: ClaimVerdict.TIE,
    }
    assert back is opposite[there]


class TestSettings:
    def test_all_must_hold_unless_most_suffice(self) -> None:
        settings = {"a": UP, "b": UP, "c": DOWN}
        assert over_settings(settings).verdict is ClaimVerdict.FAILS
        assert over_settings(settings, most=True).verdict is ClaimVerdict.HOLDS

    def test_half_is_not_most(self) -> None:
        assert over_settings({"a": UP, "b": DOWN}, most=True).verdict is ClaimVerdict.FAILS
        assert over_settings({"a": UP, "b": MIXED}, most=True).verdict is ClaimVerdict.TIE

    def test_a_tie_leaves_it_open(self) -> None:
        assert over_settings({"a": UP, "b": MIXED}).verdict is ClaimVerdict.TIE

    def test_a_failure_reports_the_setting_that_comes_nearest(self) -> None:
        judged = over_settings({"far": DOWN, "near": [-0.1, 0.09, -0.11, 0.1], "middle": [-1.0, -2.0, -3.0]})
        assert judged.verdict is ClaimVerdict.FAILS
        assert judged.note == "0 of 3 settings; nearest: near"

    def test_what_holds_reports_where_it_is_least_clear(self) -> None:
        judged = over_settings({"clear": UP, "doubtful": [1.0, 0.2, 0.9, 1.4]})
        assert judged.note == "2 of 2 settings; least clear: doubtful"
        assert judged.estimate is not None
        assert judged.estimate.mean == pytest.approx(0.875)


class TestBest:
    VALUES: ClassVar = {"mine": [1.0, 2.0, 3.0], "other": [1.5, 2.5, 3.6], "last": [9.0, 9.0, 9.0]}

    def test_the_first_in_the_mean_holds_because_seeds_are_paired(self) -> None:
        judged = best_of(self.VALUES, "mine", lowest=True)
        assert judged.verdict is ClaimVerdict.HOLDS
        assert judged.note == "next: other"

    def test_the_highest_is_sought_the_other_way(self) -> None:
        assert best_of(self.VALUES, "last", lowest=False).verdict is ClaimVerdict.HOLDS
        behind = best_of(self.VALUES, "mine", lowest=False)
        assert (behind.verdict, behind.note) == (ClaimVerdict.FAILS, "first: last")

    def test_who_cannot_be_distinguished_is_a_tie(self) -> None:
        values = {"mine": [1.0, 2.0, 3.0], "other": [1.2, 1.8, 3.1]}
        assert best_of(values, "mine", lowest=True).verdict is ClaimVerdict.TIE
        assert best_of(values, "other", lowest=True).verdict is ClaimVerdict.TIE


def test_no_difference_is_a_small_one_or_one_within_the_interval() -> None:
    assert no_difference(MIXED).verdict is ClaimVerdict.HOLDS
    assert no_difference([0.004, 0.005, 0.006]).verdict is ClaimVerdict.HOLDS
    assert no_difference(UP).verdict is ClaimVerdict.FAILS


def test_magnitudes_are_reported_with_their_relative_difference() -> None:
    near, far = magnitude([11.0, 11.02], 10.0), magnitude([5.0, 5.02], 10.0)
    assert (near.verdict, near.note[:4]) == (ClaimVerdict.HOLDS, "+10%")
    assert (far.verdict, far.note) == (ClaimVerdict.FAILS, "-50%")
    assert magnitude([5.0, 25.0], 10.0).verdict is ClaimVerdict.HOLDS
    assert magnitude([0.5, 0.5], 0.0).verdict is ClaimVerdict.FAILS
    other = magnitude([11.0, 11.1], 10.0, other_data="another trace")
    assert other.verdict is ClaimVerdict.NOT_COMPARABLE
    assert other.note.endswith("another trace")


def test_facts_and_reasons() -> None:
    assert fact(holds=True).verdict is ClaimVerdict.HOLDS
    assert fact(holds=False, note="why").note == "why"
    assert not_comparable("no such trace").estimate is None


# Any table of Student's t, two-sided 95%.
TABLE = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 19: 2.093, 30: 2.042,
    120: 1.980,
}  # fmt: skip


@pytest.mark.parametrize(("freedom", "t"), TABLE.items())
def test_t_is_that_of_the_tables(freedom: int, t: float) -> None:
    assert student_t(freedom) == pytest.approx(t, abs=5e-4)


def test_many_degrees_of_freedom_are_as_the_normal_distribution() -> None:
    assert student_t(10**9) == pytest.approx(1.96, abs=0.005)


def test_the_interval_is_the_textbooks() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0])
    half = 3.1824 * math.sqrt(5 / 3 / 4)
    assert (found.mean, found.low, found.high) == pytest.approx((2.5, 2.5 - half, 2.5 + half), abs=1e-4)


def test_one_value_has_no_interval() -> None:
    assert (estimate([7.0]).low, estimate([7.0]).high) == (None, None)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_what_has_no_mean_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        estimate(values)


@examples(100)
@given(st.floats(-1e9, 1e9), st.integers(2, 40))
def test_equal_values_leave_no_doubt(value: float, count: int) -> None:
    found = estimate([value] * count)
    assert (found.mean, found.low, found.high) == (value, value, value)


@examples(100)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.floats(0.001, 1000))
def test_intervals_hold_the_mean_and_scale_with_the_values(values: list[float], factor: float) -> None:
    found, scaled = estimate(values), estimate([factor * value for value in values])
    assert found.low is not None
    assert found.high is not None
    assert scaled.low is not None
    assert found.low <= found.mean <= found.high
    assert scaled.low == pytest.approx(factor * found.low, rel=1e-6, abs=1e-3 * factor)


def test_numbers_are_short_and_units_follow() -> None:
    assert [figures(value) for value in (0.0, 0.01234, 1.5, 99.94, 12345.6, -2.0)] == [
        "0", "0.0123", "1.5", "99.9", "12,346", "-2",
    ]  # fmt: skip
    assert estimate([3.0]).text("h") == "3 h"
    assert estimate([3.0, 3.0]).text("%") == "3%"
    assert estimate([2.0, 4.0]).text("h") == "3 [-9.71, 15.7] h"
