"""Units of quantities, and lists of numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.id_list import read_ids, spans_of, write_ids
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


MOST = 65_536


@given(ids=st.sets(st.integers(0, MOST - 1), min_size=1, max_size=60))
def test_what_is_written_is_read(ids: set[int]) -> None:
    text = write_ids(ids)
    assert read_ids(text, MOST) == tuple(sorted(ids))
    spans = spans_of(text)
    assert all(one[-1] + 1 < other[0] for one, other in pairwise(spans)), "folded"


def test_lists_are_read_in_any_order_and_padded_or_not() -> None:
    assert read_ids("7,0-3,2-4,007", 10) == (0, 1, 2, 3, 4, 7)
    assert write_ids([7, 0, 1, 2, 9, 10]) == "0-2,7,9-10"
    assert write_ids([]) == ""
    assert spans_of("0-3,007") == [range(4), range(7, 8)]


@pytest.mark.parametrize(
    "text",
    ["", ",", "1,", "-1", "1-", "3-1", "a", "1 ,2", " 1", "1\n", "1--2", "1-2-3", "0-10/2", "@all", "[1-2]",
     "²", "٣", "1234567890"],
)  # fmt: skip
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(it is made of|.* ends before)"):
        read_ids(text, MOST)


@pytest.mark.parametrize("text", ["0-999999999", "65536", ",".join(["0-65000"] * 9)])
def test_what_a_few_characters_expand_to_is_bounded_before_it_is_made(text: str) -> None:
    with pytest.raises(ValueError, match="65536 ids"):
        read_ids(text, MOST)


def test_a_text_as_long_as_a_file_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="made of other things"):
        read_ids("1," * (1 << 20) + "1", MOST)
