"""A sample a second of who used the CPUs of a cluster's nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.local.layout import Layout, NodePlace
from deploy.local.own_time import ProcessTime
from deploy.local.state import ClusterState
from deploy.local.watch import HostWatch
from deploy.shape import Shape
from foundation.cpu_time import CpuTime


class Host:
    """A host whose clock and counters a test turns."""

    def __init__(self, home: Path, cpus: tuple[int, ...] = (0, 1)) -> None:
        self.now, self.used, self.steal, self.own = 0.0, 0.0, 0.0, 0.0
        self.asked: frozenset[int] = frozenset()
        self.tells = True
        layout = Layout(
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


def test_many_looks_in_a_second_ask_the_kernel_twice(tmp_path: Path) -> None:
    host = Host(tmp_path)
    told = []
    for _ in range(100):
        host.pass_time(0.01, 0.01, 0.01)
        told.append(host.watch(host.now))
    assert sum(sample is not None for sample in told) <= 1


def test_what_the_kernel_does_not_tell_is_no_sample(tmp_path: Path) -> None:
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
