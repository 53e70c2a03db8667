"""A communicator of one rank, for jobs that run without MPI.

A rank's account of its communication: how long, how long at most, at what cost of CPU time.

The library waits by polling, so that CPU time alone does not tell computing from waiting; the two clocks
around every communication do.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray


class WaitingTime:
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


_T = TypeVar("_T")


class LoneRank:
    """What rrba calls of ``mpi4py.MPI.Comm``, among one rank: what is sent arrives here."""

    def Get_rank(self) -> int:  # noqa: N802 - the names of MPI, here and below
        """Return 0."""
        return 0

    def Get_size(self) -> int:  # noqa: N802
        """Return 1."""
        return 1

    def gather(self, own: _T) -> list[_T]:
        """Return what each rank has."""
        return [own]

    allgather = gather

    def bcast(self, own: _T) -> _T:
        """Return what the first rank has."""
        return own

    def Allreduce(self, own: NDArray[np.float64], into: NDArray[np.float64]) -> None:  # noqa: N802
        """Write the sum of one array."""
        into[...] = own

    def Sendrecv(self, own: NDArray[Any], _to: int, _tag: int, into: NDArray[Any], *_: int) -> None:  # noqa: N802
        """Send to the neighbour, which is this rank, and receive from it."""
        into[...] = own
