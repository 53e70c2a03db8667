"""What a run uses of its host: counted while processes start, end, and are waited for or orphaned."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable

from deploy.local.own_time import OwnTime, ProcessTime, read_process_times

INIT, DAEMON, STEP, RANK, OTHER = 1, 10, 20, 30, 99


def look(*rows: tuple[int, int, float, float]) -> dict[int, ProcessTime]:
    """Return living processes: number, parent, own and waited seconds; the number says when it began."""
    return {pid: ProcessTime(parent, pid, own, waited) for pid, parent, own, waited in rows}


def counted(looks: Iterable[dict[int, ProcessTime]], ours: set[int]) -> list[float]:
    own = OwnTime(ours.__contains__)
    return [round(own.look(one), 6) for one in looks]


def test_what_ours_start_is_ours_and_what_others_use_is_not() -> None:
    looks = (
        look((DAEMON, INIT, 5, 0), (OTHER, INIT, 7, 0)),
        look((DAEMON, INIT, 5.5, 0), (RANK, DAEMON, 0.25, 0), (OTHER, INIT, 8, 0)),
        look((DAEMON, INIT, 5.5, 0), (RANK, DAEMON, 1.25, 0), (OTHER, INIT, 9, 0)),
    )
    assert counted(looks, {DAEMON}) == [0.0, 0.75, 1.0]


def test_time_of_an_ended_child_is_counted_once() -> None:
    looks = (
        look((DAEMON, INIT, 0, 0), (RANK, DAEMON, 4, 0)),
        look((DAEMON, INIT, 0, 4.5)),  # it used half a second more before it ended
        look((DAEMON, INIT, 0, 4.5)),
    )
    assert counted(looks, {DAEMON}) == [0.0, 0.5, 0.0]


def test_time_of_a_child_of_a_child_comes_through_both() -> None:
    looks = (
        look((DAEMON, INIT, 0, 0), (STEP, DAEMON, 1, 0), (RANK, STEP, 3, 0)),
        look((DAEMON, INIT, 0, 5.0)),
    )
    assert counted(looks, {DAEMON}) == [0.0, 1.0]


def test_an_orphan_that_ends_leaves_its_last_seconds_with_the_reaper() -> None:
    looks = (
        look((INIT, 0, 1, 100), (DAEMON, INIT, 0, 0), (STEP, INIT, 1, 0), (RANK, STEP, 2, 0)),
        look((INIT, 0, 1, 103.5), (DAEMON, INIT, 0, 0)),
    )
    assert counted(looks, {DAEMON, STEP}) == [0.0, 0.5]


def test_a_number_that_another_process_got_starts_from_nothing() -> None:
    own = OwnTime({DAEMON}.__contains__)
    own.look({DAEMON: ProcessTime(INIT, 10, 50, 0), INIT: ProcessTime(0, 1, 0, 0)})
    assert own.look({DAEMON: ProcessTime(INIT, 11, 0.5, 0), INIT: ProcessTime(0, 1, 0, 50)}) == 0.5


def test_a_process_that_becomes_ours_after_its_start_is_seen() -> None:
    ours: set[int] = set()
    own = OwnTime(lambda pid: pid in ours)
    own.look(look((STEP, INIT, 0, 0)))
    assert not own.is_known
    ours.add(STEP)
    own.look(look((STEP, INIT, 1, 0)))
    assert own.is_known
    assert own.look(look((STEP, INIT, 2, 0))) == 1.0


def test_the_kernel_tells_of_living_processes_and_of_children_waited_for() -> None:
    before = read_process_times()[os.getpid()]
    burn = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    after = read_process_times()[os.getpid()]
    assert after.start_ticks == before.start_ticks
    assert after.parent == os.getppid()
    assert after.waited_s - before.waited_s >= 0.2
    assert time.process_time() >= after.self_s - before.self_s
