"""The supervisor of an embedded cluster: what ends is started again, after longer and longer waits."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from deploy.backoff import FIRST_S, LONG_LIFE_S, LONGEST_S, Backoff, ended_by
from deploy.local.daemons import Daemon
from deploy.local.layout import ClusterLayout, make_layout
from deploy.local.members import read_facts
from deploy.local.supervisor import Supervised
from deploy.shape import Shape

ROLE = "gang-agent n1"
SLEEP = ("/bin/sleep", "600")
Make = Callable[..., Supervised]


def test_waits_double_up_to_a_limit_and_begin_anew_after_a_long_life() -> None:
    backoff = Backoff()
    waits = [backoff.after(1.0) for _ in range(9)]
    assert waits[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert waits[-1] == LONGEST_S
    assert backoff.after(LONG_LIFE_S) == FIRST_S


@pytest.mark.parametrize(
    ("code", "said"),
    [(0, "exit code 0"), (5, "exit code 5"), (-9, "SIGKILL"), (-24, "SIGXCPU"), (None, "unknown")],
)
def test_an_end_is_said_by_signal_or_exit_code(code: int | None, said: str) -> None:
    assert ended_by(code) == said


@pytest.fixture
def layout(tmp_path: Path) -> ClusterLayout:
    layout = make_layout(tmp_path, tmp_path, Shape(nodes=1, cores=1), ((0,),))
    layout.logs.mkdir()
    return layout


@pytest.fixture
def make(layout: ClusterLayout) -> Iterator[Make]:
    made: list[Supervised] = []

    def supervised(words: Sequence[str] = SLEEP, pid: int = 0, start_ticks: int = 0) -> Supervised:
        known = Daemon(role=ROLE, pid=pid, start_ticks=start_ticks)
        made.append(Supervised(layout, words, {"PATH": "/bin:/usr/bin"}, known))
        return made[-1]

    yield supervised
    for one in made:
        if one.daemon.pid and read_facts(one.daemon.pid) is not None:
            os.kill(one.daemon.pid, signal.SIGKILL)
            os.waitpid(one.daemon.pid, 0)


def look_until_changed(one: Supervised, now_s: Callable[[], float] = time.monotonic) -> None:
    deadline_s = time.monotonic() + 60
    while not one.look(now_s()):
        assert time.monotonic() < deadline_s, one.daemon
        time.sleep(0.01)


def test_a_killed_daemon_is_started_again_after_a_wait(make: Make) -> None:
    one = make()
    assert one.look(time.monotonic())
    first = one.daemon
    assert (first.restarts, first.ended) == (0, None)
    assert not one.look(time.monotonic() + 1000), "it runs"
    os.kill(first.pid, signal.SIGKILL)
    look_until_changed(one)
    assert (one.daemon.pid, one.daemon.ended) == (first.pid, "SIGKILL")
    assert one.due_s is not None
    assert not one.look(one.due_s - 0.01)
    assert one.look(one.due_s)
    assert one.daemon.pid != first.pid
    assert (one.daemon.restarts, one.daemon.ended) == (1, "SIGKILL")


def test_one_that_was_stopped_waits_for_up(make: Make) -> None:
    one = make(("/bin/sh", "-c", "exit 0"))
    one.look(time.monotonic())
    look_until_changed(one)
    assert one.daemon.ended == "exit code 0"
    assert one.due_s is None
    assert not one.look(time.monotonic() + 1000)
    one.start_soon()
    assert one.look(time.monotonic())
    assert one.daemon.restarts == 1


def test_a_program_that_is_not_there_is_tried_again_later(make: Make, layout: ClusterLayout) -> None:
    one = make(("/does/not/exist",))
    now_s = time.monotonic()
    assert one.look(now_s)
    assert one.due_s == now_s + FIRST_S
    assert one.look(one.due_s)
    assert one.due_s == now_s + 3 * FIRST_S
    assert one.daemon.pid == 0


def test_one_that_runs_already_is_taken_over(make: Make) -> None:
    with subprocess.Popen(SLEEP) as sleeper:
        facts = read_facts(sleeper.pid)
        assert facts is not None
        one = make(pid=sleeper.pid, start_ticks=facts.start_ticks)
        assert one.is_adopted
        assert not one.look(time.monotonic())
        sleeper.kill()
    look_until_changed(one)
    assert one.daemon.ended == "unknown", "who started it has waited for it"
    assert one.due_s is not None
    assert one.look(one.due_s)
    assert not one.is_adopted
    assert one.daemon.restarts == 1
