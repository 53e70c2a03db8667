"""The loop that every application shares: step, and settle accounts among the ranks now and then."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workloads.rrba.solvers.step_solver import StepSolver
from workloads.rrba.steps.step_plan import StepTimes
from workloads.task.step_meter import Meter

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(slots=True)
class RankProgress:
    """What a rank knows of the job so far; other threads may read it at any instant.

    Attributes
    ----------
    steps_asked
        Steps that the job is to make; None until that is decided.
    steps
        Steps made.
    residual
        Root of the mean square change, or residual, of the latest settled step, over the whole grid.
    cpu_s
        CPU seconds of all ranks up to the latest settled step.
    """

    steps_asked: int | None = None
    steps: int = 0
    residual: float | None = None
    cpu_s: float = 0.0


class Stepping:
    """Steps a solver on all ranks alike.

    Parameters
    ----------
    comm
        All ranks of the job.
    solver
        This rank's part.
    points
        Points of the whole grid, for the mean.
    progress
        Kept up to date.
    """

    def __init__(self, comm: MPI.Comm, solver: StepSolver, points: int, progress: RankProgress) -> None:
        self._comm = comm
        self._solver = solver
        self._points = points
        self._progress = progress
        self._mine = np.zeros(3)
        self._sums = np.zeros(3)
        self._meter = Meter.of(os.environ) if comm.Get_rank() == 0 else None

    def settle(self, stop: bool = False) -> bool:
        """Add up residual and CPU time of all ranks; return whether any rank said ``stop``. Collective."""
        self._mine[:] = self._solver.change_square(), time.process_time(), float(stop)
        with self._solver.waiting:
            self._comm.Allreduce(self._mine, self._sums)
        self._progress.residual = math.sqrt(self._sums[0] / self._points)
        self._progress.cpu_s = float(self._sums[1])
        return bool(self._sums[2] > 0)

    def advance(self, steps: int) -> None:
        """Make ``steps`` steps, settling every few and after the last."""
        for remaining in range(steps, 0, -1):
            self._solver.step()
            self._progress.steps += 1
            if self._meter is not None:
                self._meter.step()
            if self._progress.steps % self._solver.settle_steps == 0 or remaining == 1:
                self.settle()

    def advance_for(self, seconds: float) -> None:
        """Step until the first rank's clock says that ``seconds`` have passed."""
        end_s = time.monotonic() + seconds
        stop = False
        while not stop:
            for _ in range(self._solver.settle_steps):
                self._solver.step()
                self._progress.steps += 1
            stop = self.settle(self._comm.Get_rank() == 0 and time.monotonic() >= end_s)

    def advance_measured(self, steps: int) -> StepTimes:
        """Make ``steps`` steps and return what each took over all ranks; the same on every rank.

        The cost of settling is spread over the steps in ``wall_s`` and ``compute_s``.
        """
        waiting = self._solver.waiting
        mine = np.empty((3, steps))
        for index in range(steps):
            cpu_s, wall_s, waited_s = time.thread_time(), time.perf_counter(), waiting.cpu_s
            self._solver.step()
            self._progress.steps += 1
            if self._progress.steps % self._solver.settle_steps == 0:
                self.settle()
            wall_s, cpu_s = time.perf_counter() - wall_s, time.thread_time() - cpu_s
            mine[:, index] = wall_s, wall_s - cpu_s, cpu_s - (waiting.cpu_s - waited_s)
        largest = mine
        if self._comm.Get_size() > 1:
            from mpi4py import MPI

            largest = np.empty_like(mine)
            self._comm.Allreduce(mine, largest, MPI.MAX)
        return StepTimes(largest[0], largest[1], largest[2])
