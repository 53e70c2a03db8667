"""What a solver offers to the program that steps it, and a rank's account of its communication.

The library waits by polling, so that CPU time alone does not tell computing from waiting; the two clocks
around every communication do.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class WaitingTime:
    """Accumulates the time spent in its context: a communication.

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

    def __enter__(self) -> None:
        self._cpu_ns = time.thread_time_ns()
        self._wall_ns = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        wall_s = (time.perf_counter_ns() - self._wall_ns) / 1e9
        self.cpu_s += (time.thread_time_ns() - self._cpu_ns) / 1e9
        self.wall_s += wall_s
        self.longest_s = max(self.longest_s, wall_s)


class StepSolver(ABC):
    """One rank's part of a time-stepping computation whose answer is known.

    Attributes
    ----------
    waiting
        The rank's account of its communication.
    settle_steps
        How many steps make up a few milliseconds at most: as often all ranks settle accounts.
    """

    settle_steps = 1

    def __init__(self) -> None:
        self.waiting = WaitingTime()

    @property
    def tolerance(self) -> float:
        """The largest ``deviation`` that rounding explains, or iteration up to this step.

        Rounding enters at about 1e-16 to 1e-15 a step. Steps contract it, or add it up as a random walk, so
        for any grid that fits a machine and any length its sum stays far below this.
        """
        return 1e-8

    @abstractmethod
    def step(self) -> None:
        """Advance one time step. Collective: no rank can be more than one step ahead of a neighbour."""

    @abstractmethod
    def change_square(self) -> float:
        """Return this rank's sum of squares of what the latest step changed, or what it left to change."""

    @abstractmethod
    def deviation(self) -> float:
        """Return this rank's largest distance from the known solution at this step."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the message-passing library holds between steps."""
