"""Units of quantities, and lists of numbers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.csv_table import read_csv
from foundation.errors import InputError
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
    ("message", "texts"),
    [
        (r"^(it is made of|.* ends before)", ["", ",", "1,", "-1", "1-", "3-1", "a", "1 ,2", " 1", "1\n"]),
        (r"^(it is made of|.* ends before)", ["1--2", "1-2-3", "0-10/2", "@all", "[1-2]"]),
        (r"^(it is made of|.* ends before)", ["²", "٣", "1234567890"]),
        ("65536 ids", ["0-999999999", "65536", ",".join(["0-65000"] * 9)]),  # before it is made
        ("made of other things", ["1," * (1 << 20) + "1"]),  # a text as long as a file, at once
    ],
)  # fmt: skip
def test_everything_else_is_refused(message: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError, match=message):
            read_ids(text, MOST)


def test_cells_come_by_column_without_blanks(tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfb,a,more\n1, x ,y\n\n.5e1,,\n")
    first, second = read_csv(path, ("a", "b"), None)
    assert (first.text("a"), first.whole("b", 9), first.text("none"), first.where) == (
        "x",
        1,
        "",
        f"{path}:2",
    )
    assert (second.number("b", 9), second.number("a", 9), second.where) == (5.0, None, f"{path}:4")
    for text in ("1_0", "٣", "inf", "1e400", "0x1", "-1", "10"):
        path.write_text(f"a,b\nx,{text}\n", encoding="utf-8")
        (row,) = read_csv(path, ("a", "b"))
        for read in (row.number, row.whole):
            with pytest.raises(InputError, match=r":2: b: "):
                read("b", 9)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n1\n", ":1: no column b"),
        (b"a,b,c\n", ":1: unknown column 'c'"),
        (b"a,b,a\n", ":1: column a is here twice"),
        (b"a,b\n1\n", ":2: 1 cell for 2 columns"),
        (b'a,b\n1,"2\n', ":2: no CSV"),
        (b"a,b\n1,\xff\n", "no text in UTF-8"),
        (b"a,b\n1,2\n3,4\n5,6\n", ":4: more than 2 rows"),
        (b"a,b\n" + b"1" * 100, "larger than"),
    ],
)
def test_a_table_of_another_form_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (path := tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_csv(path, ("a", "b"), most_rows=2, most_bytes=50))
    with pytest.raises(InputError, match="cannot read"):
        list(read_csv(tmp_path, ("a", "b")))
