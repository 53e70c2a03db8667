"""What a worker computes in a busy period: real arithmetic on data that stays in its core's cache.

A kernel is a callable that does about a tenth of a millisecond of work; ``KERNELS`` names them.
The period ends at the first kernel that reaches the CPU time asked for, so it is never short and
is long by one kernel at most.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

Kernel = Callable[[], None]

# Two arrays of 2048 doubles are 32 KiB: within the first-level data cache of every current core.
SMOOTHER_POINTS = 2048
SMOOTHER_SWEEPS = 12


def cache_resident_smoother() -> Kernel:
    """Return a kernel that smooths a periodic signal with a three-point stencil."""
    # One thread: a library that starts its own would compute outside the worker's measure, and a
    # process with threads cannot be forked safely.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    import numpy as np  # here, since a job without busy periods need not pay for it

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


def consume(
    cpu_s: float,
    kernel: Kernel,
    keep_on: Callable[[], bool],
    clock: Callable[[], float] = time.process_time,
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
