"""What a worker computes in a busy period: real arithmetic, in its core's cache or through its memory.

A kernel is a callable that does about a tenth of a millisecond of work; ``KERNELS`` names those that stay in
the cache, and ``Streaming`` mixes one with traffic to memory. The period ends at the first kernel that
reaches the CPU time asked for, so it is never short and is long by one kernel at most.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

Kernel = Callable[[], None]

# Two arrays of 2048 doubles are 32 KiB: within the first-level data cache of every current core.
SMOOTHER_POINTS = 2048
SMOOTHER_SWEEPS = 12
# Read and written at a time: a tenth of a millisecond at a few GiB/s, and eight pages at least.
STREAM_POINTS = 32_768
DOUBLE_BYTES = 8


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker's busy periods are made of.

    Attributes
    ----------
    kernel
        A name of ``KERNELS``.
    memory_mib
        Memory that each worker holds from its start to its end, every page of it touched.
    traffic
        The share of busy CPU time, from 0 to 1, in which that memory is read and written; the rest is
        ``kernel``'s.
    """

    kernel: str = "smoother"
    memory_mib: int = 0
    traffic: float = 0.0

    @property
    def memory_bytes(self) -> int:
        """The same in bytes."""
        return self.memory_mib * 2**20


def load_libraries() -> None:
    """Import what kernels compute with; to be called once, before workers are forked."""
    # One thread: a library that starts its own would compute outside the worker's measure, and a
    # process with threads cannot be forked safely.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    import numpy  # noqa: F401 - here, since a job without busy periods need not pay for it


def cache_resident_smoother() -> Kernel:
    """Return a kernel that smooths a periodic signal with a three-point stencil."""
    import numpy as np

    # Between 1 and 2, and the weights sum to 1: it can neither overflow nor underflow, however long it runs.
    signal = 1.5 + 0.5 * np.sin(np.linspace(0.0, 2.0 * np.pi, SMOOTHER_POINTS, endpoint=False))
    smooth = np.empty_like(signal)

    def sweep_many() -> None:
        for _ in range(SMOOTHER_SWEEPS):
            np.add(signal[:-2], signal[2:], out=smooth[1:-1])
            smooth[0] = signal[-1] + signal[1]
            smooth[-1] = signal[-2] + signal[0]
            np.multiply(smooth, 0.25, out=smooth)
            np.multiply(signal, 0.5, out=signal)
            np.add(signal, smooth, out=signal)

    return sweep_many


KERNELS: dict[str, Callable[[], Kernel]] = {"smoother": cache_resident_smoother}


class Streaming:
    """A kernel that keeps a share of its CPU time in memory and leaves the rest to another kernel.

    Each call does whichever of the two is behind. Memory is read and written piece after piece, so that a
    footprint larger than the caches is fetched anew each time round.

    Parameters
    ----------
    kernel
        The other kernel.
    memory_bytes
        The footprint; touched here, by the worker on its own core, so that it is that core's memory.
    traffic
        The share, from 0 to 1.
    clock
        This process's CPU time in seconds.

    Attributes
    ----------
    streamed_bytes
        Read so far; as many were written.
    """

    def __init__(
        self,
        kernel: Kernel,
        memory_bytes: int,
        traffic: float,
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        import numpy as np

        self._kernel = kernel
        self._memory = np.full(max(STREAM_POINTS, memory_bytes // DOUBLE_BYTES), 1.0)
        self._traffic = traffic
        self._clock = clock
        self._place = 0
        self._streamed_s = 0.0
        self._all_s = 0.0
        self.streamed_bytes = 0

    def __call__(self) -> None:
        """Do about a tenth of a millisecond of work."""
        begin_s = self._clock()
        streaming = self._streamed_s < self._traffic * self._all_s or self._traffic == 1.0
        if streaming:
            self._stream()
        else:
            self._kernel()
        used_s = self._clock() - begin_s
        self._all_s += used_s
        if streaming:
            self._streamed_s += used_s

    def _stream(self) -> None:
        piece = self._memory[self._place : self._place + STREAM_POINTS]
        # Between 1 and 2 for ever: x -> 3 - x.
        piece *= -1.0
        piece += 3.0
        self.streamed_bytes += piece.nbytes
        self._place += STREAM_POINTS
        if self._place >= self._memory.size:
            self._place = 0


def make_kernel(load: Load) -> Kernel:
    """Return the kernel of ``load``; its memory is allocated and touched by the caller's process."""
    kernel = KERNELS[load.kernel]()
    if load.memory_mib == 0 and load.traffic == 0:
        return kernel
    return Streaming(kernel, load.memory_bytes, load.traffic)


def consume(
    cpu_s: float, kernel: Kernel, keep_on: Callable[[], bool], clock: Callable[[], float] = time.process_time
) -> float:
    """Run ``kernel`` until ``clock`` has advanced by ``cpu_s`` or ``keep_on`` says no; return the advance.

    Parameters
    ----------
    cpu_s
        CPU time to consume, in seconds.
    kernel
        The computation; called as often as it takes.
    keep_on
        Asked after each call; a worker whose coordinator has died stops there.
    clock
        This process's CPU time in seconds, so that time spent waiting for a shared core does not count.
    """
    begin_s = clock()
    while (used_s := clock() - begin_s) < cpu_s and keep_on():
        kernel()
    return used_s
