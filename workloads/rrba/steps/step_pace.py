"""How long a step takes on cores that the job has for itself, measured also while it has not.

The number of steps is chosen from this, and a job that starts on shared cores must still do the work
of a dedicated one. A rank that was kept from its core in a step shows a gap between wall and CPU
time, and the exchange makes every other rank wait for it. So the steps without a gap on any rank are
those that a dedicated job would have made, and their mean wall time is the pace. Where sharing is so
dense that there are none, the CPU time outside communication stands in for it: of each step, that of
the slowest rank.
"""

from __future__ import annotations

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
class Pace:
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


def estimate_pace(times: StepTimes) -> Pace:
    """Return the dedicated pace; ``times`` holds at least one step."""
    clean = clean_steps(times)
    if np.count_nonzero(clean) >= min(CLEAN_STEPS_NEEDED, max(1, times.wall_s.size - WARM_UP_STEPS)):
        wall_s = times.wall_s[clean]
        # A delay can reach a distant rank a step later than it shows as a gap, and what a hypervisor takes
        # shows as none. Delays only lengthen steps, so the quick ones say what is usual.
        return Pace(float(np.mean(wall_s[wall_s <= 2 * quantiles(wall_s, (0.1,))[0]])), "clean steps")
    settled = times.compute_s[WARM_UP_STEPS:] if times.wall_s.size > WARM_UP_STEPS else times.compute_s
    return Pace(float(np.mean(settled)), "CPU time")
