"""One reader of tables in CSV: what it takes, and what its errors name."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.csv_table import read_csv
from foundation.errors import InputError


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
