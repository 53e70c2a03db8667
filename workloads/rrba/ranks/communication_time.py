"""A rank's account of its communication: how long, how long at most, at what cost of CPU time.

The library waits by polling, so that CPU time alone does not tell computing from waiting; the two clocks
around every communication do.
"""

from __future__ import annotations

import time


class Waiting:
    """Accumulates the time between ``begin`` and ``end``.

    Attributes
    ----------
    wall_s
        Wall time in communication so far.
    cpu_s
        This thread's CPU time in communication so far.
    longest_s
        The longest single communication: how late the slowest partner was.
    """

    __slots__ = ("_cpu_ns", "_wall_ns", "cpu_s", "longest_s", "wall_s")

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self.longest_s = 0.0
        self._wall_ns = 0
        self._cpu_ns = 0

    def begin(self) -> None:
        """Start a communication."""
        self._cpu_ns = time.thread_time_ns()
        self._wall_ns = time.perf_counter_ns()

    def end(self) -> None:
        """End the communication that was begun."""
        wall_s = (time.perf_counter_ns() - self._wall_ns) / 1e9
        self.cpu_s += (time.thread_time_ns() - self._cpu_ns) / 1e9
        self.wall_s += wall_s
        self.longest_s = max(self.longest_s, wall_s)
