"""The job's report, from what each rank knows."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from workloads.rrba.cuts.slabs import Grid
from workloads.rrba.steps.calibrations import host_type
from workloads.rrba.steps.stepping import Progress
from workloads.task.job_report import JobReport
from workloads.task.pinning import Pin
from workloads.task.process_clock import ProcessStart
from workloads.task.slurm_task import SlurmTask


@dataclass(frozen=True, slots=True)
class Member:
    """A rank as it is before the first step; the first rank holds one of each."""

    host: str
    affinity: list[int]
    pinned: bool
    warning: str | None
    start_ms: int


@dataclass(frozen=True, slots=True)
class Effort:
    """What a rank spent, told after the last step.

    Attributes
    ----------
    cpu_s
        Its CPU seconds.
    steps_cpu_s
        Those of its steps.
    wait_s
        Its wall seconds in communication.
    longest_s
        Its longest single communication.
    deviation
        Its largest distance from the known solution.
    core_share
        CPU time over wall time of its steps.
    """

    cpu_s: float
    steps_cpu_s: float
    wait_s: float
    longest_s: float
    deviation: float
    core_share: float


@dataclass(slots=True)
class Account:
    """All that goes into the report, as far as it is known; other threads may read it at any instant.

    Attributes
    ----------
    kernel, grid, target_s, nodes
        What was asked for, and of how many nodes.
    progress
        Steps, residual and CPU time so far.
    members
        All ranks; on the first one only.
    startup_s
        From the process's start to the first step.
    step_s
        The dedicated step time from which the number of steps was chosen.
    calibration
        From where it is: a file, ``clean steps`` or ``CPU time``; None where the steps were given.
    clipped
        Whether the target left no time for even one step.
    stepping_from_s, stepping_from_cpu_s
        When the first step began, on CLOCK_MONOTONIC and in CPU time of this rank.
    warnings
        For the user.
    """

    kernel: str
    grid: Grid
    target_s: float | None
    nodes: int
    progress: Progress
    members: list[Member] = field(default_factory=list)
    startup_s: float | None = None
    step_s: float | None = None
    calibration: str | None = None
    clipped: bool = False
    stepping_from_s: float | None = None
    stepping_from_cpu_s: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def report(self, state: str, efforts: Sequence[Effort] = (), failure: str | None = None) -> JobReport:
        """Return the report; ``efforts`` holds all ranks' or, of a job that was stopped, none."""
        now_s = time.monotonic()
        deviation = max((effort.deviation for effort in efforts), default=None)
        return JobReport(
            app="rrba",
            kernel=self.kernel,
            state=state,
            start_ms=min(member.start_ms for member in self.members),
            end_ms=round(time.time() * 1000),
            nodes=self.nodes,
            tasks=len(self.members),
            hosts=list(dict.fromkeys(member.host for member in self.members)),
            affinity=[member.affinity for member in self.members],
            pinned=all(member.pinned for member in self.members),
            cpu_s=math.fsum(effort.cpu_s for effort in efforts) if efforts else self.progress.cpu_s,
            busy_s=None if self.stepping_from_s is None else now_s - self.stepping_from_s,
            startup_s=self.startup_s,
            skew_max_s=max((effort.longest_s for effort in efforts), default=None),
            host_type=host_type(),
            target_s=self.target_s,
            grid=str(self.grid),
            steps_asked=self.progress.steps_asked,
            steps=self.progress.steps,
            step_s=self.step_s,
            steps_cpu_s=max((effort.steps_cpu_s for effort in efforts), default=None),
            calibration=self.calibration,
            clipped=self.clipped,
            wait_s=max((effort.wait_s for effort in efforts), default=None),
            core_share=min((effort.core_share for effort in efforts), default=None),
            residual=_finite(self.progress.residual),
            deviation=_finite(deviation),
            warnings=[*self.warnings, *(member.warning for member in self.members if member.warning)],
            failure=failure,
        )


def this_member(begin: ProcessStart, task: SlurmTask, pin: Pin) -> Member:
    """Return what the calling rank says of itself."""
    return Member(
        host=task.node_name or socket.gethostname(),
        affinity=sorted(os.sched_getaffinity(0)),
        pinned=pin.cpu is not None,
        warning=pin.warning,
        start_ms=begin.epoch_ms,
    )


def _finite(number: float | None) -> float | None:
    """Return ``number``, or None where JSON has no word for it."""
    return number if number is not None and math.isfinite(number) else None
