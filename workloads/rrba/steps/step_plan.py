"""Run times and numbers of steps: from a target to steps, from a few runs to a line; pure arithmetic.

Source of the line: thesis 7.4.4, where each pair of application and parallelism runs on a dedicated node with
several values of ITR, and a regression line predicts the length for a target.

How long a step takes on cores that the job has for itself, measured also while it has not.

The number of steps is chosen from this, and a job that starts on shared cores must still do the work
of a dedicated one. A rank that was kept from its core in a step shows a gap between wall and CPU
time, and the exchange makes every other rank wait for it. So the steps without a gap on any rank are
those that a dedicated job would have made, and their mean wall time is the pace. Where sharing is so
dense that there are none, the CPU time outside communication replaces it: of each step, that of
the slowest rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from analysis.quantiles import quantiles

# A gap below either is the two clocks' own jitter, or an interrupt.
GAP_LIMIT_S = 20e-6
GAP_LIMIT_SHARE = 0.02
# The first steps touch memory for the first time and fill the caches.
WARM_UP_STEPS = 8
CLEAN_STEPS_NEEDED = 12


@dataclass(frozen=True, slots=True)
class StepPace:
    """Seconds a step takes on dedicated cores, and from what that is known."""

    step_s: float
    source: Literal["clean steps", "CPU time"]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Per step, over all ranks; each of shape (steps,), in seconds.

    Attributes
    ----------
    wall_s
        The longest wall time.
    gap_s
        The largest wall time without CPU time.
    compute_s
        The largest CPU time outside communication.
    """

    wall_s: NDArray[np.float64]
    gap_s: NDArray[np.float64]
    compute_s: NDArray[np.float64]

    @classmethod
    def none(cls) -> Self:
        """Return the times of no steps."""
        return cls(np.empty(0), np.empty(0), np.empty(0))

    def followed_by(self, later: StepTimes) -> StepTimes:
        """Return these steps and then ``later``."""
        return StepTimes(
            np.concatenate((self.wall_s, later.wall_s)),
            np.concatenate((self.gap_s, later.gap_s)),
            np.concatenate((self.compute_s, later.compute_s)),
        )


def clean_steps(times: StepTimes) -> NDArray[np.bool_]:
    """Say of each step whether no rank was kept from its core in it; warm-up steps are not counted."""
    clean: NDArray[np.bool_] = times.gap_s <= np.maximum(GAP_LIMIT_S, GAP_LIMIT_SHARE * times.wall_s)
    clean[:WARM_UP_STEPS] = False
    return clean


def estimate_pace(times: StepTimes) -> StepPace:
    """Return the dedicated pace; ``times`` holds at least one step."""
    clean = clean_steps(times)
    if np.count_nonzero(clean) >= min(CLEAN_STEPS_NEEDED, max(1, times.wall_s.size - WARM_UP_STEPS)):
        wall_s = times.wall_s[clean]
        # A delay can reach a distant rank a step later than it shows as a gap, and what a hypervisor takes
        # shows as none. Delays only lengthen steps, so the quick ones say what is usual.
        return StepPace(float(np.mean(wall_s[wall_s <= 2 * quantiles(wall_s, (0.1,))[0]])), "clean steps")
    settled = times.compute_s[WARM_UP_STEPS:] if times.wall_s.size > WARM_UP_STEPS else times.compute_s
    return StepPace(float(np.mean(settled)), "CPU time")


# From the last step to the exit of the last process: the check of the answer, the report, MPI_Finalize
# and the interpreter's end. docs/applications.md has the measurement.
SHUTDOWN_S = 0.03
# Of the start-up, what may be spent blocked (reading files, waiting for the launcher). More than
# that is the job being held, which a dedicated job would not have been.
BLOCKED_LIMIT_S = 0.5

# Of the longest sample: far enough apart for a slope, and none so short that start-up is most of it.
_SHARES = (0.2, 0.5, 1.0)


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


def sample_steps(available_s: float, done: int, pace: StepPace | None) -> int:
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


@dataclass(frozen=True, slots=True)
class DedicatedRun:
    """One run on dedicated cores: ``steps`` steps took ``run_s`` from the job's start to its end."""

    steps: int
    run_s: float


@dataclass(frozen=True, slots=True)
class StepLine:
    """``run_s = overhead_s + step_s * steps``.

    Attributes
    ----------
    step_s, overhead_s
        Slope and intercept.
    worst
        The largest relative distance of a sample from the line.
    """

    step_s: float
    overhead_s: float
    worst: float


def sample_lengths(step_s: float, longest_s: float) -> tuple[int, ...]:
    """Return the numbers of steps to sample; ``step_s`` is a first guess of a step's time."""
    return tuple(dict.fromkeys(max(1, math.ceil(share * longest_s / step_s)) for share in _SHARES))


def fit_line(samples: Sequence[DedicatedRun]) -> StepLine | None:
    """Return the line of least relative errors; None where the samples have one length only, or fall.

    Times scatter in proportion to themselves, so each sample counts by the inverse square of its time. A
    negative overhead is none: the line then goes through the origin.
    """
    steps = np.array([sample.steps for sample in samples], dtype=np.float64)
    run_s = np.array([sample.run_s for sample in samples])
    if np.ptp(steps) == 0:
        return None
    step_s, overhead_s = np.polyfit(steps, run_s, 1, w=1 / run_s).tolist()
    if overhead_s < 0:
        relative = steps / run_s
        step_s, overhead_s = float(relative.sum() / (relative @ relative)), 0.0
    if step_s <= 0:
        return None
    worst = float(np.max(np.abs(overhead_s + step_s * steps - run_s) / run_s))
    return StepLine(step_s, overhead_s, worst)
