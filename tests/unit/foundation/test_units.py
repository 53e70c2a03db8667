"""Durations of one sentence have one unit."""

from __future__ import annotations

import pytest

from foundation.units import duration, durations


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.00 s"), (179, "179.0 s"), (180, "3.00 min"), (10_800, "3.00 h"), (3e5, "3.47 days")],
)
def test_a_duration_has_the_unit_a_reader_thinks_in(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_durations_of_a_sentence_have_the_unit_of_the_longest() -> None:
    assert durations(9234.0, 11_634.0) == ["2.56 h", "3.23 h"]
    assert durations(11_634.0, 60.0) == ["3.23 h", "0.017 h"]
    assert durations(5.0, -200.0) == ["0.083 min", "-3.33 min"]


def test_rough_durations_have_few_digits() -> None:
    texts = [duration(seconds, rough=True) for seconds in (0.04, 16.2, 130.0, 200.0, 7200.0, 1e6)]
    assert texts == ["0.0 s", "16 s", "130 s", "3.3 min", "120 min", "12 days"]
