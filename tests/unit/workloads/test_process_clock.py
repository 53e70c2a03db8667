from __future__ import annotations

import os
import time

import psutil
import pytest

from workloads.task.process_clock import age_from_stat, process_start, run_queue_delay_s

STAT = b"42 (a) b (c) S " + " ".join(str(field) for field in range(4, 22)).encode() + b" 1000 0 0"


def test_start_is_the_field_after_whatever_the_name_holds() -> None:
    assert age_from_stat(STAT, ticks_per_s=100, boottime_s=12.5) == pytest.approx(2.49)


def test_age_is_never_negative() -> None:
    assert age_from_stat(STAT, ticks_per_s=100, boottime_s=10.005) == 0.0


def test_line_that_is_no_stat_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line"):
        age_from_stat(b"42 (a) S 1", 100, 1.0)


def test_this_process_began_when_others_say_it_did() -> None:
    began = process_start()
    assert began.epoch_ms == pytest.approx(psutil.Process(os.getpid()).create_time() * 1000, abs=1100)
    assert began.monotonic_s < time.monotonic()


def test_run_queue_delay_only_grows() -> None:
    before_s = run_queue_delay_s()
    assert 0.0 <= before_s <= run_queue_delay_s()
