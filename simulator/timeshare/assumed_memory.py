"""What jobs need of a node's memory, where the trace does not tell (Hofmeyr et al., section II).

Of Edison's jobs is printed that 90% of the node-hours use less than 60% of a node, that memory does
not depend on size, and that nodes have 9 jobs in the mean, 20 at times, the vast majority of them admitted
at once. How it is distributed is not printed. By default most need little: the logarithm is normal, with a
median of 2% of a node, and 99% of the node-hours are below 60%; what would exceed a node is drawn anew. That
is an assumption under which memory hardly matters. ``draw_memory_below`` draws what is printed, in two forms.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal

import numpy as np

from simulator.jit.field_records import Ints
from simulator.timeshare.timeshare_state import MEMORY

MEDIAN, SPREAD = 0.02, 1.5
"""Of the memory that a job needs of each of its nodes, and standard deviation of its logarithm."""


HIGH = 0.6
"""The part of a node of which the paper tells how many node-hours are below it."""
MemoryForm = Literal["all need more", "some need most"]


def draw_memory(count: int, seed: int, median: float = MEDIAN, spread: float = SPREAD) -> Ints:
    """Return thousandths of a node's memory for ``count`` jobs, at least 1, at most all."""
    rng = np.random.default_rng([seed, 88])
    drawn = median * np.exp(spread * rng.standard_normal(count))
    while (over := drawn > 1).any():
        drawn[over] = median * np.exp(spread * rng.standard_normal(int(over.sum())))
    thousandths: Ints = np.clip(np.ceil(drawn * MEMORY), 1, MEMORY).astype(np.int64)
    return thousandths


def draw_memory_below(count: int, seed: int, share: float, form: MemoryForm) -> Ints:
    """Return memory of which a share of the jobs, and so of the node-hours, needs less than ``HIGH``.

    Parameters
    ----------
    count, seed
        As of ``draw_memory``.
    share
        Between 0.8 and 0.99.
    form
        Whether the median is higher than by default for all, or the others need from ``HIGH`` to a whole node
        and the rest is as by default.
    """
    if form == "all need more":
        return draw_memory(count, seed, _median_of(share))
    drawn = draw_memory(count, seed)
    rng = np.random.default_rng([seed, 89])
    high = rng.permutation(count)[: round((1 - share) * count)]
    low = np.minimum(drawn, int(HIGH * MEMORY) - 1)
    low[high] = rng.integers(int(HIGH * MEMORY), MEMORY + 1, len(high))
    return low


def _median_of(share: float) -> float:
    normal = NormalDist(sigma=SPREAD)
    low, high = MEDIAN, HIGH
    for _ in range(60):
        middle = (low * high) ** 0.5
        below = normal.cdf(math.log(HIGH / middle)) / normal.cdf(math.log(1 / middle))
        low, high = (middle, high) if below > share else (low, middle)
    return high
