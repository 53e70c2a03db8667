"""The supervisor of an embedded cluster, and the host's load that it watches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from deploy.backoff import FIRST_S, LONG_LIFE_S, LONGEST_S, Backoff, ended_by
from deploy.local import host
from deploy.local.daemons import Daemon
from deploy.local.host import busy_share, busy_warning
from deploy.local.layout import ClusterLayout, make_layout
from deploy.local.members import read_facts
from deploy.local.supervisor import Supervised
from deploy.local.watch import HostWatch, OwnTime, ProcessTime, read_process_times
from deploy.shape import Shape
from foundation.cpu_time import CpuTime, cpu_time

ROLE = "gang-agent n1"
SLEEP = ("/bin/sleep", "600")
Make = Callable[..., Supervised]


def test_waits_double_up_to_a_limit_and_begin_anew_after_a_long_life() -> None:
    backoff = Backoff()
    waits = [backoff.after(1.0) for _ in range(9)]
    assert (waits[:3], waits[-1]) == ([FIRST_S, 2 * FIRST_S, 4 * FIRST_S], LONGEST_S)
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
    assert (one.due_s, one.daemon.pid) == (now_s + 3 * FIRST_S, 0)


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


class _Cpu(NamedTuple):
    user: float
    nice: float
    system: float
    idle: float
    iowait: float
    irq: float
    softirq: float
    steal: float
    guest: float
    guest_nice: float


def kernel(monkeypatch: pytest.MonkeyPatch, *cpus: Sequence[float]) -> None:
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [_Cpu(*one) for one in cpus] if percpu else None)


def test_time_used_and_time_stolen_count_and_waiting_for_a_disk_does_not() -> None:
    readings = iter((CpuTime(150, 40, 1200), CpuTime(170, 50, 1310)))
    # 20 used and 10 stolen of 110.
    assert busy_share(0.0, lambda: next(readings)) == pytest.approx(30 / 110)


def test_cpu_time_is_of_the_cpus_asked_for_and_a_guests_time_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel(monkeypatch, (1, 2, 3, 100, 10, 4, 5, 6, 1, 1), (10, 0, 0, 20, 0, 0, 0, 0, 0, 0))
    assert cpu_time() == CpuTime(25, 6, 161)
    assert cpu_time([1]) == CpuTime(10, 0, 30)
    assert cpu_time([2]) is None


@pytest.mark.parametrize("fault", [OSError, ValueError])
def test_a_kernel_that_does_not_report_is_not_called_busy(
    monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    def refuse(*, percpu: bool) -> None:
        raise fault

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    assert busy_share(0.0) is None
    kernel(monkeypatch)  # no CPU, no time
    assert busy_share(0.0) is None


def test_a_counter_that_steps_back_is_no_time() -> None:
    assert CpuTime(1, 1, 1).since(CpuTime(2, 2, 0.5)) == CpuTime(0, 0, 0.5)


def test_only_a_busy_host_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for share, warned in ((None, False), (0.0, False), (host.CALM, False), (0.5, True)):
        monkeypatch.setattr(host, "busy_share", lambda share=share: share)
        assert (busy_warning() is not None) == warned
    assert "others use 50% of its CPUs" in str(busy_warning())


INIT, DAEMON, STEP, RANK, OTHER = 1, 10, 20, 30, 99


class Host:
    """A host whose clock and counters a test turns."""

    def __init__(self, *cpus: int) -> None:
        self.now, self.used, self.steal, self.own = 0.0, 0.0, 0.0, 0.0
        self.asked: frozenset[int] = frozenset()
        self.tells = True
        self.watch = HostWatch(
            frozenset(cpus),
            lambda pid: pid == os.getpid(),
            read_cpus=self.cpus,
            read_processes=lambda: {os.getpid(): ProcessTime(1, 5, self.own, 0.0)},
            monotonic=lambda: self.now,
        )

    def cpus(self, cpus: frozenset[int]) -> CpuTime | None:
        self.asked = cpus
        return CpuTime(self.used, self.steal, 2 * self.now) if self.tells else None

    def pass_time(self, seconds: float, used: float, own: float, steal: float = 0.0) -> None:
        self.now += seconds
        self.used += used
        self.own += own
        self.steal += steal


def test_a_sample_is_of_the_whole_second_and_of_the_nodes_cpus() -> None:
    host = Host(1)
    assert host.asked == {1}
    host.pass_time(0.5, 0.4, 0.3)
    assert host.watch(10.5) is None
    host.pass_time(0.6, 0.5, 0.1, steal=0.2)
    sample = host.watch(11.1)
    assert sample is not None
    assert (sample.at_s, sample.length_s, sample.cpus) == (11.1, 1.1, 1)
    assert (sample.used_s, sample.own_s, sample.steal_s) == pytest.approx((0.9, 0.4, 0.2))
    host.pass_time(1.0, 0.0, 0.0)
    again = host.watch(12.1)
    assert again is not None
    assert (again.used_s, again.own_s) == (0.0, 0.0)


def test_the_last_sample_of_a_run_may_be_shorter() -> None:
    host = Host(0, 1)
    host.pass_time(0.05, 0.05, 0.0)
    assert host.watch(0.05, last=True) is None
    host.pass_time(0.25, 0.1, 0.1)
    sample = host.watch(0.3, last=True)
    assert sample is not None
    assert (sample.length_s, sample.used_s, sample.own_s) == pytest.approx((0.3, 0.15, 0.1))


def test_many_looks_in_a_second_ask_the_kernel_twice() -> None:
    host = Host(0, 1)
    seen = []
    for _ in range(100):
        host.pass_time(0.01, 0.01, 0.01)
        seen.append(host.watch(host.now))
    assert sum(sample is not None for sample in seen) <= 1


def test_what_the_kernel_does_not_report_is_no_sample() -> None:
    host = Host(0, 1)
    host.tells = False
    host.pass_time(2.0, 1.0, 1.0)
    assert host.watch(2.0) is None
    host.tells = True
    host.pass_time(2.0, 1.0, 1.0)
    assert host.watch(4.0) is None  # there is nothing to take the difference to
    host.pass_time(2.0, 1.0, 1.0)
    assert host.watch(6.0) is not None


def test_before_second_0_there_are_no_samples() -> None:
    host = Host(0, 1)
    host.pass_time(2.0, 1.0, 1.0)
    assert host.watch(-0.1) is None


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


@pytest.mark.slow
def test_the_kernel_reports_of_living_processes_and_of_children_waited_for() -> None:
    before = read_process_times()[os.getpid()]
    burn = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    after = read_process_times()[os.getpid()]
    assert (after.start_ticks, after.parent) == (before.start_ticks, os.getppid())
    assert after.waited_s - before.waited_s >= 0.2
    assert time.process_time() >= after.self_s - before.self_s
