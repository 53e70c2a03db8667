"""Means and their intervals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.claims import estimate, figures, student_t
from tests.fixtures.tier import examples

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
