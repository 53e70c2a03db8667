"""Whether a host is calm enough to measure on, from what the kernel counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local import busy
from deploy.local.busy import busy_share, busy_warning


def test_time_used_and_time_stolen_count_and_waiting_for_a_disk_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    # user nice system idle iowait irq softirq steal guest guest_nice
    stat.write_text("cpu  100 0 50 1000 10 0 0 40 0 0\ncpu0 1 2 3\n")

    def later(_: float) -> None:
        stat.write_text("cpu  120 0 60 1060 20 0 0 50 0 0\ncpu0 1 2 3\n")

    monkeypatch.setattr("time.sleep", later)
    # 20 + 10 + 10 of 20 + 10 + 60 + 10 + 10.
    assert busy_share(1.0, stat) == pytest.approx(40 / 110)


@pytest.mark.parametrize(
    "text", ["", "cpu\n", "cpu a b c d e f g h\n", "intr 1 2 3 4 5 6 7 8 9\n", "cpu 1 2 3\n"]
)
def test_a_kernel_that_does_not_tell_is_not_called_busy(tmp_path: Path, text: str) -> None:
    stat = tmp_path / "stat"
    stat.write_text(text)
    assert busy_share(0.0, stat) is None
    assert busy_share(0.0, tmp_path / "none") is None


def test_only_a_busy_host_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for share, warned in ((None, False), (0.0, False), (busy.CALM, False), (0.5, True)):
        monkeypatch.setattr(busy, "busy_share", lambda share=share: share)
        assert (busy_warning() is not None) == warned
    assert "others use 50% of its CPUs" in str(busy_warning())
