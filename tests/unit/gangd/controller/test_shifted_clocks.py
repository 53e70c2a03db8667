"""Clocks that differ by days and decades, and a wall clock that is set, while jobs take turns."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.fixtures.gang_company import Company
from tests.fixtures.gang_loop import Stage, two_jobs

SECOND_NS = 1_000_000_000
SHIFTS_S = (10_000_000, (1 << 31) - 1_000_000, 0, 86_400)
"""CLOCK_MONOTONIC of one controller after the other; beyond 2^31 s pyzmq cannot poll."""
AGENTS_SHIFT_S = 1 << 31


@pytest.mark.long
def test_controllers_whose_clocks_are_decades_apart_follow_each_other(tmp_path: Path) -> None:
    shifted = ["unshare", "--time", "--monotonic"]
    if subprocess.run([*shifted, "1", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can make a time namespace")
    company, followed = Company(tmp_path, nodes=2), None
    try:
        company.board(prefix=[*shifted, str(AGENTS_SHIFT_S)])
        for shift_s in SHIFTS_S:
            child = company.lead(
                prefix=["unshare", "--time", "--kill-child", "--fork", "--monotonic", str(shift_s)]
            )
            followed = company.all_hold(but=followed)
            child.send_signal(signal.SIGKILL)
            child.wait(20)
        seen = company.seen()
    finally:
        company.close()
    assert max(one.beyond_ns for one in seen) < SECOND_NS, "nothing is held beyond the lease"


@pytest.mark.slow
def test_a_wall_clock_that_is_set_by_an_hour_ends_no_lease_and_no_turn(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs())
    one, two = stage.agent("n1"), stage.agent("n2")
    stepped_s = 0

    def wall() -> int:
        return time.time_ns() + stepped_s * SECOND_NS

    stage.loop._wall = wall
    leaseless = 0

    def scene() -> None:
        nonlocal stepped_s, leaseless
        for agent in (one, two):
            stage.welcome(agent)
        stage.until(lambda: bool(one.timeline.jobs(one.timeline.horizon)))
        for step_s in (3_600, -3_600, 0):
            stepped_s = step_s
            first = one.timeline.horizon

            def passed(first: int = first) -> bool:
                nonlocal leaseless
                leaseless += one.timeline.lease_over(time.monotonic_ns())
                return one.timeline.horizon > first + 12

            stage.until(passed)
            last = one.timeline.horizon
            held = [one.timeline.held(number) for number in range(last - 8, last)]
            assert set().union(*held) == {1, 2}
            assert not any(jobs == {1, 2} for jobs in held)

    with stage.play(scene):
        pass
    assert not leaseless
