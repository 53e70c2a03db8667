"""Whether a host is calm enough to measure on, from what the kernel counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import psutil
import pytest

from deploy.local import host
from deploy.local.host import busy_share, busy_warning
from foundation.cpu_time import CpuTime, cpu_time


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
