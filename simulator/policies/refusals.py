"""Refusals remembered: a job like one that was just refused, and no shorter, need not be tried.

As long as nothing starts or ends it would get the same cores and stay there at least as long, so it would
delay the queue's head as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.engine.compile import kernel
from simulator.engine.state import REQUEST_US, SHAPE, Ints, State

SERIES, SHORTEST_US = range(2)
"""Fields of ``Refusals.by_shape``."""


class Refusals(NamedTuple):
    """What was refused.

    ``series[0]`` counts up whenever earlier refusals lose their force; ``by_shape`` has, for each shape of
    job, the series in which one was refused last, and the shortest request refused in it.
    """

    series: Ints
    by_shape: Ints


def no_refusals(shapes: int) -> Refusals:
    """Return the memory of a pass that has not begun, for ``shapes`` different shapes of job."""
    return Refusals(np.ones(1, dtype=np.int64), np.zeros((2, shapes), dtype=np.int64))


@kernel
def forget_refusals(refusals: Refusals) -> None:
    """Begin a new series: something has started or ended, or time has passed."""
    refusals.series[0] += 1


@kernel
def is_hopeless(state: State, refusals: Refusals, job: int) -> bool:
    """Return whether a job like this one, but no longer, was refused in this series."""
    shape = state.jobs[SHAPE, job]
    return bool(
        refusals.by_shape[SERIES, shape] == refusals.series[0]
        and refusals.by_shape[SHORTEST_US, shape] <= state.jobs[REQUEST_US, job]
    )


@kernel
def note_refusal(state: State, refusals: Refusals, job: int, request_us: int) -> None:
    """Remember that a job of the shape of ``job`` was refused, with a shorter request than any before."""
    shape = state.jobs[SHAPE, job]
    refusals.by_shape[SERIES, shape] = refusals.series[0]
    refusals.by_shape[SHORTEST_US, shape] = request_us
