"""The verdicts: what holds, fails, ties, and what cannot be compared."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.claims import (
    ClaimVerdict,
    best_of,
    direction,
    fact,
    magnitude,
    no_difference,
    not_comparable,
    over_settings,
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
