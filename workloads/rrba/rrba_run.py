"""One job from MPI_Init to the report: prepare, choose the steps, make them, check the answer.

Whatever can go wrong on one rank is agreed on by all before the first step, so that the job ends with one
message and one exit code, and no rank waits for one that has left.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from foundation.errors import HostError, OsubError, UsageError
from foundation.units import counted
from workloads.rrba.ranks.shared_segments import discard_segments
from workloads.rrba.rrba_options import RrbaOptions
from workloads.rrba.solvers.applications import check_fits
from workloads.rrba.solvers.step_solver import StepSolver
from workloads.rrba.steps.calibrations import (
    Calibration,
    find_calibration,
    host_type,
    key_of,
    store_calibration,
)
from workloads.rrba.steps.step_plan import (
    SHUTDOWN_S,
    WARM_UP_STEPS,
    StepPace,
    StepTimes,
    dedicated_startup_s,
    estimate_pace,
    plan_steps,
    sample_steps,
)
from workloads.rrba.steps.stepping import RankProgress, Stepping
from workloads.task import job_report
from workloads.task.job_report import COMPLETED, FAILED, TERMINATED, JobReport
from workloads.task.process_clock import ProcessStart, run_queue_delay_s
from workloads.task.slurm_task import Pin, SlurmTask

if TYPE_CHECKING:
    from mpi4py import MPI

    from workloads.rrba.ranks.lone_rank import LoneRank


@dataclass(frozen=True, slots=True)
class RankMember:
    """A rank as it is before the first step; the first rank holds one of each."""

    host: str
    affinity: list[int]
    pinned: bool
    warning: str | None
    start_ms: int


@dataclass(frozen=True, slots=True)
class RankEffort:
    """What a rank spent, reported after the last step.

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


def _finite(number: float | None) -> float | None:
    """Return ``number``, or None where JSON has no word for it."""
    return number if number is not None and math.isfinite(number) else None


# A calibration is of dedicated cores: every rank had at least this share of its own.
DEDICATED_SHARE = 0.97
# A stored pace is compared with that of a job's first steps. Steps of one host differ by 10% from run to run.
COMPARED_STEPS = 40
CHANGED_HOST = 0.3
# The launcher may kill all when one rank has gone: time for the first one to write its report.
FIRST_RANK_GRACE_S = 0.5

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Origin:
    """From where this rank comes: when it began, where Slurm put it, what was made of its pin.

    ``launch_s`` is the time from the job's start, as its wrapper stamped it, to this process's.
    """

    begin: ProcessStart
    task: SlurmTask
    pin: Pin
    launch_s: float


def run_job(comm: MPI.Comm | LoneRank, options: RrbaOptions, origin: Origin) -> int:
    """Run the job that ``options`` ask for on all ranks of ``comm``; return the exit code.

    Raises
    ------
    OsubError
        The same on every rank.
    """
    job = _RankJob(cast("MPI.Comm", comm), options, origin)
    try:
        return job.run()
    finally:
        job.close()


class _RankJob:
    def __init__(self, comm: MPI.Comm, options: RrbaOptions, origin: Origin) -> None:
        self._comm = comm
        self._options = options
        self._origin = origin
        self._first = comm.Get_rank() == 0
        self._ranks = comm.Get_size()
        self._grid = options.grid or options.application.usual_grid(self._ranks)
        self._progress = RankProgress(steps_asked=options.steps)
        # Of all ranks, but known to the first one only.
        self._members = [
            RankMember(
                host=origin.task.node_name or socket.gethostname(),
                affinity=sorted(os.sched_getaffinity(0)),
                pinned=origin.pin.cpu is not None,
                warning=origin.pin.warning,
                start_ms=origin.begin.epoch_ms,
            )
        ]
        # What goes into the report, as far as it is known; the thread of a signal reads it at any instant.
        self._startup_s: float | None = None
        self._step_s: float | None = None
        self._calibration: str | None = None
        self._clipped = False
        self._stepping_from_s: float | None = None
        self._stepping_from_cpu_s = 0.0
        self._warnings: list[str] = []
        self._key = key_of(options.application.name, self._grid, self._ranks, origin.task.nodes)
        self._stored: Calibration | None = None
        self._solver: StepSolver | None = None
        # One report is published, whether the end or a signal comes first.
        self._reporting = threading.Lock()
        self._reported = False
        self._watch = TerminationWatch(self._terminated)

    def close(self) -> None:
        """Release the solver's requests."""
        if self._solver is not None:
            self._solver.close()

    def run(self) -> int:
        """Prepare, step and report."""
        solver = self._prepare()
        stepping = Stepping(self._comm, solver, self._grid.points, self._progress)
        overhead_s = self._overhead_s()
        self._stepping_from_s = time.monotonic()
        self._stepping_from_cpu_s = time.process_time()
        self._startup_s = self._stepping_from_s - self._origin.begin.monotonic_s
        if self._options.calibrate_s is not None:
            self._calibrate(stepping, self._options.calibrate_s, overhead_s)
        elif self._options.target_s is not None:
            self._reach(stepping, self._options.target_s, overhead_s)
        else:
            stepping.advance(self._options.steps or 0)
        return self._finish(solver)

    def _prepare(self) -> StepSolver:
        """Make this rank's solver, and on the first rank all that the job needs; on all ranks or on none."""
        members = self._comm.gather(self._members[0])
        if members is not None:
            self._members = members
        error: OsubError | None = None
        try:
            tasks = self._origin.task.tasks
            if self._ranks == 1 and tasks is not None and tasks > 1:
                raise UsageError(
                    f"Slurm started {counted(tasks, 'task')}, MPI sees one; start them with srun --mpi=pmi2"
                )
            self._options.application.check(self._grid, self._ranks)
            self._check_memory()
            if self._first:
                job_report.check_writable(self._options.report)
                self._look_up()
            self._solver = self._options.application.build(self._comm, self._grid)
        except OsubError as caught:
            error = caught
        self._agree(error)
        assert self._solver is not None
        self._stored = self._comm.bcast(self._stored)
        return self._solver

    def _check_memory(self) -> None:
        ranks_here = 1
        if self._ranks > 1:
            from mpi4py import MPI

            here = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
            ranks_here = here.Get_size()
            here.Free()
        check_fits(self._grid, self._options.application.rank_bytes(self._grid, self._ranks), ranks_here)

    def _look_up(self) -> None:
        """Find the stored calibration, if one is to be used."""
        path = self._options.calibration
        if path is None or self._options.target_s is None:
            return
        self._stored = find_calibration(path, self._key)
        if self._stored is None:
            self._warnings.append(
                f"{path} has no calibration of {self._key.app} {self._key.grid} on "
                f"{counted(self._ranks, 'rank')} and {counted(self._key.nodes, 'node')} of "
                f"{self._key.host_type}; measured instead"
            )

    def _overhead_s(self) -> float:
        """Return what start-up and shutdown take on dedicated cores; the same on every rank."""
        age_s = time.monotonic() - self._origin.begin.monotonic_s
        startup_s = dedicated_startup_s(age_s, run_queue_delay_s(), time.process_time())
        # The others' start-up includes waiting for the rank that was delayed most; its own has the delay
        # taken out. So the least is what all would have taken.
        least_s: float = min(self._comm.allgather(startup_s + self._origin.launch_s))
        return least_s + SHUTDOWN_S

    def _reach(self, stepping: Stepping, target_s: float, overhead_s: float) -> None:
        """Make as many steps as take ``target_s`` on dedicated cores."""
        if self._stored is not None:
            step_s, overhead_s = self._stored.step_s, self._stored.overhead_s
            self._calibration = str(self._options.calibration)
            self._compare(stepping, plan_steps(target_s, overhead_s, step_s).steps, step_s)
        else:
            pace = self._measure(stepping, target_s - overhead_s)
            if pace is None:
                step_s = target_s
            else:
                step_s = pace.step_s
                self._calibration = pace.source
        plan = plan_steps(target_s, overhead_s, step_s)
        steps = max(plan.steps, self._progress.steps)
        self._step_s = step_s if self._calibration else None
        self._clipped = plan.clipped
        self._progress.steps_asked = steps
        stepping.advance(steps - self._progress.steps)

    def _compare(self, stepping: Stepping, steps: int, step_s: float) -> None:
        """Make the job's first steps and warn where they show that this is no longer the host calibrated."""
        count = min(COMPARED_STEPS, steps // 2)
        if count <= WARM_UP_STEPS:
            return
        pace = estimate_pace(stepping.advance_measured(count))
        # On shared cores wall time tells of the others, not of the host; CPU time does, of a rank alone.
        is_clean = pace.source == "clean steps" or self._ranks == 1
        if is_clean and abs(pace.step_s / step_s - 1) > CHANGED_HOST:
            self._warnings.append(
                f"a step takes {1e3 * pace.step_s:.3g} ms here and {1e3 * step_s:.3g} ms in the calibration: "
                "this host has changed or is another; calibrate anew"
            )

    def _measure(self, stepping: Stepping, available_s: float) -> StepPace | None:
        """Measure the first steps of the job; None if there is no time for any."""
        times = StepTimes.none()
        pace: StepPace | None = None
        while more := sample_steps(available_s, self._progress.steps, pace):
            times = times.followed_by(stepping.advance_measured(more))
            pace = estimate_pace(times)
        return pace

    def _calibrate(self, stepping: Stepping, seconds: float, overhead_s: float) -> None:
        """Step for ``seconds`` and store what a step took."""
        stepping.advance(WARM_UP_STEPS)
        before = self._progress.steps
        wall_s, cpu_s = time.monotonic(), time.process_time()
        stepping.advance_for(seconds)
        wall_s, cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s
        steps = self._progress.steps - before
        self._progress.steps_asked = self._progress.steps
        # Ranks wait by polling, so that a rank on a core of its own consumes all of it.
        share: float = min(self._comm.allgather(cpu_s / wall_s))
        if share < DEDICATED_SHARE:
            raise HostError(
                f"nothing calibrated: a rank had {share:.0%} of its core, not all; calibrate on an idle node"
            )
        self._agree(
            self._store(Calibration(self._key, wall_s / steps, overhead_s, steps, round(time.time() * 1000)))
        )

    def _store(self, calibration: Calibration) -> OsubError | None:
        """On the first rank: store ``calibration``; return what hindered it."""
        path = self._options.calibration
        self._step_s = calibration.step_s
        self._calibration = str(path)
        if not self._first or path is None:
            return None
        try:
            store_calibration(path, calibration)
        except OsubError as error:
            return error
        return None

    def _agree(self, error: OsubError | None) -> None:
        """Make one rank's error everybody's: the first one's that has one."""
        errors = self._comm.allgather(None if error is None else (error.exit_code, str(error)))
        for code, message in filter(None, errors):
            raise UsageError(message) if code == UsageError.exit_code else HostError(message)

    def _finish(self, solver: StepSolver) -> int:
        """Check the answer and publish the report; return the exit code, the same on every rank."""
        waiting = solver.waiting
        assert self._stepping_from_s is not None
        cpu_s, wall_s = time.process_time(), time.monotonic() - self._stepping_from_s
        steps_cpu_s = cpu_s - self._stepping_from_cpu_s
        share = min(steps_cpu_s / wall_s, 1.0)
        effort = RankEffort(cpu_s, steps_cpu_s, waiting.wall_s, waiting.longest_s, solver.deviation(), share)
        efforts = self._comm.gather(effort)
        error: OsubError | None = None
        if efforts is not None:
            worst = max(effort.deviation for effort in efforts)
            if not worst <= solver.tolerance:
                error = HostError(
                    f"the answer is wrong by {worst:g} after {counted(self._progress.steps, 'step')}; check "
                    "the hosts"
                )
            state, failure = (COMPLETED, None) if error is None else (FAILED, str(error))
            try:
                self._publish(self._report(state, efforts, failure))
            except OsubError as caught:
                error = caught
        self._agree(error)
        return 0

    def _terminated(self, signal_number: int) -> None:
        """Report what was done and end this process; runs while the rank may be waiting for others."""
        discard_segments()  # at once: a rank that waits for the first one to report may be killed meanwhile
        if self._first:
            with contextlib.suppress(OsubError):
                self._publish(self._report(TERMINATED))
        else:
            time.sleep(FIRST_RANK_GRACE_S)
        os._exit(128 + signal_number)

    def _report(
        self, state: str, efforts: Sequence[RankEffort] = (), failure: str | None = None
    ) -> JobReport:
        """Return the report; ``efforts`` holds all ranks' or, of a job that was stopped, none."""
        now_s = time.monotonic()
        progress, members = self._progress, self._members
        deviation = max((effort.deviation for effort in efforts), default=None)
        return JobReport(
            app="rrba",
            kernel=self._options.application.name,
            state=state,
            start_ms=min(member.start_ms for member in members),
            end_ms=round(time.time() * 1000),
            nodes=self._origin.task.nodes,
            tasks=len(members),
            hosts=list(dict.fromkeys(member.host for member in members)),
            affinity=[member.affinity for member in members],
            pinned=all(member.pinned for member in members),
            cpu_s=math.fsum(effort.cpu_s for effort in efforts) if efforts else progress.cpu_s,
            busy_s=None if self._stepping_from_s is None else now_s - self._stepping_from_s,
            startup_s=self._startup_s,
            skew_max_s=max((effort.longest_s for effort in efforts), default=None),
            host_type=host_type(),
            target_s=self._options.target_s,
            grid=str(self._grid),
            steps_asked=progress.steps_asked,
            steps=progress.steps,
            step_s=self._step_s,
            steps_cpu_s=max((effort.steps_cpu_s for effort in efforts), default=None),
            calibration=self._calibration,
            clipped=self._clipped,
            wait_s=max((effort.wait_s for effort in efforts), default=None),
            core_share=min((effort.core_share for effort in efforts), default=None),
            residual=_finite(progress.residual),
            deviation=_finite(deviation),
            warnings=[*self._warnings, *(member.warning for member in members if member.warning)],
            failure=failure,
        )

    def _publish(self, report: JobReport) -> None:
        with self._reporting:
            if not self._reported:
                self._reported = True
                job_report.publish(report, self._options.report)


class TerminationWatch:
    """Calls ``on_signal``, in a thread of its own, with the first of ``SIGNALS`` that comes.

    To be made in the main thread, once.
    """

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal
        self._reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._watch, name="termination", daemon=True).start()

    def _watch(self) -> None:
        while True:
            (number,) = os.read(self._reading, 1)
            if number in SIGNALS:
                self._on_signal(number)
                return
