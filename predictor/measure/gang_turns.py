"""Gang slices: programs take turns on all CPUs of a window, as gangd's agents let jobs on a node.

A turn stops one program, every rank of it, and lets the next one run; so the ranks of a job that wait for
each other run at the same time. Signals go to all processes of a program one after the other, within tens of
microseconds of each other on one host; on several nodes gangd's broadcast does that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from predictor.measure.frozen_program import Running

PassTime = Callable[[float], None]
"""Lets at least so many seconds pass, in which programs run as their kind wants it."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Passes time in whole rounds, in each of which every program has a turn.

    Parameters
    ----------
    programs
        Frozen, and frozen again whenever a call returns or raises.
    slice_s
        How long a turn is.
    pause
        Waits, in seconds.
    """

    programs: Sequence[Running]
    slice_s: float
    pause: PassTime = field(default=time.sleep)

    def __call__(self, seconds: float) -> None:
        """Let whole rounds pass, for at least so many seconds and at least one round."""
        rounds = max(1, math.ceil(seconds / (self.slice_s * len(self.programs)) - 1e-9))
        for _ in range(rounds):
            for program in self.programs:
                program.resume()
                try:
                    self.pause(self.slice_s)
                finally:
                    program.freeze()
