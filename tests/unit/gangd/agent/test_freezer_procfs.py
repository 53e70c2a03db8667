from __future__ import annotations

from pathlib import Path

import pytest

from gangd.freezer.procfs import pending_signals

TERM, TSTP, KILL = 1 << 14, 1 << 19, 1 << 8


@pytest.mark.parametrize(
    ("waiting", "blocked", "ignored", "counts"),
    [
        (TERM, 0, 0, TERM),
        (TERM | KILL, TERM, 0, KILL),
        (TSTP, TSTP, 0, 0),
        (TERM, 0, TERM, 0),
        (0, TERM, TERM, 0),
    ],
)
def test_a_signal_that_a_process_blocks_or_ignores_does_not_wait(
    tmp_path: Path, waiting: int, blocked: int, ignored: int, counts: int
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(
        f"Name:\tSigPnd:\nSigQ:\t1/9\nSigPnd:\t{0:016x}\nShdPnd:\t{waiting:016x}\n"
        f"SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{0:016x}\n"
    )
    assert pending_signals(7, tmp_path) == counts
    assert pending_signals(8, tmp_path) == 0
