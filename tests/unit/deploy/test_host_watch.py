"""What a run uses of its host, sample by sample: counted while processes start, end, and are waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from deploy.local.layout import ClusterLayout, NodePlace
from deploy.local.state import ClusterState
from deploy.local.watch import HostWatch, OwnTime, ProcessTime, read_process_times
from deploy.shape import Shape
from foundation.cpu_time import CpuTime

INIT, DAEMON, STEP, RANK, OTHER = 1, 10, 20, 30, 99


class Host:
    """A host whose clock and counters a test turns."""

    def __init__(self, home: Path, cpus: tuple[int, ...] = (0, 1)) -> None:
        self.now, self.used, self.steal, self.own = 0.0, 0.0, 0.0, 0.0
        self.asked: frozenset[int] = frozenset()
        self.tells = True
        layout = ClusterLayout(
            state=str(home),
            short=str(home),
            cluster_name="osub-aaaaa",
            controller_port=20_000,
            gang_ports=(20_001, 20_002),
            nodes=(NodePlace(name="aaaaa-n1", port=20_003, cpus=cpus),),
        )
        state = ClusterState(shape=Shape(nodes=1, cores=2), layout=layout, cgroup="none")
        self.watch = HostWatch(
            state,
            os.getpid(),
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


def test_a_sample_is_of_the_whole_second_and_of_the_nodes_cpus(tmp_path: Path) -> None:
    host = Host(tmp_path, (1,))
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


def test_the_last_sample_of_a_run_may_be_shorter(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.pass_time(0.05, 0.05, 0.0)
    assert host.watch(0.05, last=True) is None
    host.pass_time(0.25, 0.1, 0.1)
    sample = host.watch(0.3, last=True)
    assert sample is not None
    assert (sample.length_s, sample.used_s, sample.own_s) == pytest.approx((0.3, 0.15, 0.1))


def test_many_looks_in_a_second_ask_the_kernel_twice(tmp_path: Path) -> None:
    host = Host(tmp_path)
    told = []
    for _ in range(100):
        host.pass_time(0.01, 0.01, 0.01)
        told.append(host.watch(host.now))
    assert sum(sample is not None for sample in told) <= 1


def test_what_the_kernel_does_not_report_is_no_sample(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.tells = False
    host.pass_time(2.0, 1.0, 1.0)
    assert host.watch(2.0) is None
    host.tells = True
    host.pass_time(2.0, 1.0, 1.0)
    assert host.watch(4.0) is None  # there is nothing to take the difference to
    host.pass_time(2.0, 1.0, 1.0)
    assert host.watch(6.0) is not None


def test_before_second_0_there_are_no_samples(tmp_path: Path) -> None:
    host = Host(tmp_path)
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


def test_the_kernel_reports_of_living_processes_and_of_children_waited_for() -> None:
    before = read_process_times()[os.getpid()]
    burn = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    after = read_process_times()[os.getpid()]
    assert after.start_ticks == before.start_ticks
    assert after.parent == os.getppid()
    assert after.waited_s - before.waited_s >= 0.2
    assert time.process_time() >= after.self_s - before.self_s
