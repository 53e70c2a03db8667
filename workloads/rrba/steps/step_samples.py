"""From runs of a few lengths to the line of run time over steps: pure arithmetic.

Source: thesis 7.4.4, where each pair of application and parallelism runs on a dedicated node with several
values of ITR, and a regression line predicts the length for a target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Of the longest sample: far enough apart for a slope, and none so short that start-up is most of it.
_SHARES = (0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """One run on dedicated cores: ``steps`` steps took ``run_s`` from the job's start to its end."""

    steps: int
    run_s: float


@dataclass(frozen=True, slots=True)
class Line:
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


def fit_line(samples: Sequence[Sample]) -> Line | None:
    """Return the line of least relative errors; None where the samples have one length only, or fall.

    Times scatter in proportion to themselves, so each sample counts by the inverse square of its time. A
    negative overhead is none: the line then goes through the origin.
    """
    weights = [1 / sample.run_s**2 for sample in samples]
    total = math.fsum(weights)
    mean_steps = math.fsum(w * s.steps for w, s in zip(weights, samples, strict=True)) / total
    mean_s = math.fsum(w * s.run_s for w, s in zip(weights, samples, strict=True)) / total
    spread = math.fsum(w * (s.steps - mean_steps) ** 2 for w, s in zip(weights, samples, strict=True))
    if spread == 0:
        return None
    slope = (
        math.fsum(
            w * (s.steps - mean_steps) * (s.run_s - mean_s) for w, s in zip(weights, samples, strict=True)
        )
        / spread
    )
    overhead_s = mean_s - slope * mean_steps
    if overhead_s < 0:
        squares = math.fsum(w * s.steps**2 for w, s in zip(weights, samples, strict=True))
        slope = math.fsum(w * s.steps * s.run_s for w, s in zip(weights, samples, strict=True)) / squares
        overhead_s = 0.0
    if slope <= 0:
        return None
    worst = max(abs(overhead_s + slope * s.steps - s.run_s) / s.run_s for s in samples)
    return Line(slope, overhead_s, worst)
