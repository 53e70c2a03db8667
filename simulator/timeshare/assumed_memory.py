"""What jobs need of a node's memory, where the trace does not tell (Hofmeyr et al., section II).

Of Edison's jobs is printed that 90% of the node-hours use less than 60% of a node, that memory does
not depend on size, and that nodes have 9 jobs in the mean, 20 at times, the vast majority of them admitted at
once. So most need little: the logarithm is normal, with a median of 2% of a node; what would exceed a node is
drawn anew.
"""

from __future__ import annotations

import numpy as np

from simulator.engine.kernels.field_records import Ints
from simulator.timeshare.timeshare_state import MEMORY

MEDIAN, SPREAD = 0.02, 1.5
"""Of the memory that a job needs of each of its nodes, and standard deviation of its logarithm."""


def draw_memory(count: int, seed: int, median: float = MEDIAN, spread: float = SPREAD) -> Ints:
    """Return thousandths of a node's memory for ``count`` jobs, at least 1, at most all."""
    rng = np.random.default_rng([seed, 88])
    drawn = median * np.exp(spread * rng.standard_normal(count))
    while (over := drawn > 1).any():
        drawn[over] = median * np.exp(spread * rng.standard_normal(int(over.sum())))
    thousandths: Ints = np.clip(np.ceil(drawn * MEMORY), 1, MEMORY).astype(np.int64)
    return thousandths
