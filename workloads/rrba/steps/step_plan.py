"""From a target run time to a number of steps: pure arithmetic on what was measured or stored."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.rrba.steps.step_pace import Pace

# From the last step to the exit of the last process: the check of the answer, the report, MPI_Finalize
# and the interpreter's end. docs/applications.md has the measurement.
SHUTDOWN_S = 0.03
# Of the start-up, what may be spent blocked (reading files, waiting for the launcher). More than
# that is the job being held, which a dedicated job would not have been.
BLOCKED_LIMIT_S = 0.5


@dataclass(frozen=True, slots=True)
class StepPlan:
    """How many steps to make.

    Attributes
    ----------
    steps
        At least 1.
    clipped
        The target left no time for even one step.
    """

    steps: int
    clipped: bool


def dedicated_startup_s(age_s: float, run_queue_delay_s: float, cpu_s: float) -> float:
    """Return what this process's start-up would have taken on a core of its own, in seconds.

    Parameters
    ----------
    age_s
        Wall time since the process began.
    run_queue_delay_s
        Of it, the time in which it could have run but another had the core.
    cpu_s
        CPU time it consumed.
    """
    return max(0.0, min(age_s - run_queue_delay_s, cpu_s + BLOCKED_LIMIT_S))


def plan_steps(target_s: float, overhead_s: float, step_s: float) -> StepPlan:
    """Return the number of steps whose run time is nearest to ``target_s``.

    Parameters
    ----------
    target_s
        From the start of the job's first process to the end of its last, on dedicated cores.
    overhead_s
        Of it, what is not stepping: start-up and shutdown.
    step_s
        A step's time.
    """
    steps = round((target_s - overhead_s) / step_s)
    return StepPlan(max(1, steps), clipped=steps < 1)


def sample_steps(available_s: float, done: int, pace: Pace | None) -> int:
    """Return how many more steps to measure before the pace is trusted; 0 when it is.

    The sample is a quarter of the ``available_s`` for stepping, and from 0.1 s to 5 s; it never makes
    more steps than fit. It costs nothing, as the steps belong to the job; but the number asked for is
    known only after it.

    Parameters
    ----------
    available_s
        Time for stepping.
    done
        Steps measured so far.
    pace
        What they say; None before the first.
    """
    if available_s <= 0:
        return 0
    if pace is None:
        return 1
    wanted = min(max(0.1, available_s / 4), 5.0) / pace.step_s
    fitting = available_s / pace.step_s
    # At most fourfold at a time: the first steps are slower than those to come.
    return max(0, min(int(min(max(wanted, 16.0), fitting)) - done, max(1, 3 * done)))
