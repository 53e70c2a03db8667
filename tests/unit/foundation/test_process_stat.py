from __future__ import annotations

import pytest

from foundation.process_stat import PARENT, START_TICKS, STATE, split_stat


def test_a_name_may_hold_anything() -> None:
    line = b"42 (a) R 1 (\xff) S 7 " + b" ".join(b"%d" % field for field in range(5, 22)) + b" 1000 0\n"
    name, fields = split_stat(line)
    assert name == b"a) R 1 (\xff"
    assert (fields[STATE], fields[PARENT], fields[START_TICKS]) == (b"S", b"7", b"1000")


@pytest.mark.parametrize("line", [b"", b"42 (a) S 1", b"1 2 3", b") " + b"0 " * 30])
def test_what_is_no_line_of_the_kernel_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a line"):
        split_stat(line)
