"""Two or more ranks that work for some microseconds and then wait for each other, over and over.

``barrier GRAIN_US STEPS``. The work is the same number of passes over a small array in each step, as many as
take GRAIN_US at the start, so that a rank that gets less of its core delays all.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from foundation.errors import OsubError
from foundation.mpi_start import start_mpi
from workloads.rrba.ranks.shared_segments import clear_the_way
from workloads.task.step_meter import Meter

_ELEMENTS = 512
_TRIALS = 400


def main() -> int:
    """Run until the steps are made; return the exit code."""
    words = sys.argv[1:]
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        print("barrier: GRAIN_US STEPS, both whole numbers", file=sys.stderr)
        return 2
    grain_us, steps = map(int, words)
    try:
        clear_the_way(os.environ)
        start_mpi("barrier")
        run(grain_us, steps)
    except OsubError as error:
        print(f"barrier: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run(grain_us: int, steps: int) -> None:
    """Work and meet so many times; the first rank's meter tells the steps."""
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    field = np.ones(_ELEMENTS)

    def once() -> None:
        np.multiply(field, 1.0, out=field)

    passes = comm.bcast(max(1, round(grain_us * 1e-6 / _pass_s(once))))
    meter = Meter.of(os.environ) if comm.Get_rank() == 0 else None
    for _ in range(steps):
        for _ in range(passes):
            once()
        comm.Barrier()
        if meter is not None:
            meter.step()
    MPI.Finalize()


def _pass_s(once: Callable[[], None]) -> float:
    """Return the CPU time of a pass, the median of many, however busy the core is."""
    taken = []
    for _ in range(_TRIALS):
        begin_s = time.thread_time()
        for _ in range(10):
            once()
        taken.append((time.thread_time() - begin_s) / 10)
    return max(sorted(taken)[_TRIALS // 2], 1e-8)


if __name__ == "__main__":
    sys.exit(main())
