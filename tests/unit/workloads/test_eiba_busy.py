from __future__ import annotations

import numpy as np
import pytest

from workloads.eiba.busy_work import KERNELS, STREAM_POINTS, Load, Streaming, consume, make_kernel


class CountingClock:
    """A CPU clock that advances by what the kernel says it used."""

    def __init__(self, per_call_s: float) -> None:
        self.now_s = 5.0
        self.calls = 0
        self._per_call_s = per_call_s

    def __call__(self) -> float:
        return self.now_s

    def kernel(self) -> None:
        self.calls += 1
        self.now_s += self._per_call_s


def test_busy_ends_with_the_first_kernel_that_reaches_the_time() -> None:
    clock = CountingClock(per_call_s=0.25)
    assert consume(0.9, clock.kernel, lambda: True, clock) == pytest.approx(1.0)
    assert clock.calls == 4


def test_no_busy_time_computes_nothing() -> None:
    clock = CountingClock(per_call_s=1.0)
    assert consume(0.0, clock.kernel, lambda: True, clock) == 0.0
    assert clock.calls == 0


def test_worker_without_coordinator_stops_at_once() -> None:
    clock = CountingClock(per_call_s=0.1)
    consume(1000.0, clock.kernel, lambda: clock.calls < 3, clock)
    assert clock.calls == 3


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_kernel_computes_for_ever_without_overflow_or_underflow(name: str) -> None:
    kernel = KERNELS[name]()
    with np.errstate(all="raise"):
        for _ in range(500):
            kernel()


@pytest.mark.parametrize("traffic", [0.25, 0.5, 1.0])
def test_memory_gets_its_share_of_the_busy_time(traffic: float) -> None:
    clock = CountingClock(per_call_s=0.0)

    def tick() -> float:
        clock.now_s += 0.001
        return clock.now_s

    mixed = Streaming(clock.kernel, 2**20, traffic, tick)
    for _ in range(400):
        mixed()
    assert mixed.streamed_bytes / (STREAM_POINTS * 8) == pytest.approx(400 * traffic, abs=1)
    assert clock.calls == pytest.approx(400 * (1 - traffic), abs=1)


def test_streaming_goes_round_the_whole_footprint_without_overflow() -> None:
    mixed = Streaming(lambda: None, 3 * STREAM_POINTS * 8, 1.0)
    with np.errstate(all="raise"):
        for _ in range(3 * 101):
            mixed()
    assert set(mixed._memory) == {2.0}


def test_load_without_memory_is_the_kernel_alone() -> None:
    assert not isinstance(make_kernel(Load()), Streaming)
    assert isinstance(make_kernel(Load(memory_mib=1)), Streaming)
