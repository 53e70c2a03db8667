"""Nodes that are slower for a step of ten seconds (Hofmeyr et al., section VI)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.jit.field_records import Ints
from simulator.timeshare.timeshare_loop import STEP_US
from simulator.timeshare.timeshare_state import WHOLE

PIECE = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """In each step each node has this probability to run at a speed from ``least`` to 1, for that step."""

    probability: float
    least: float = 0.5
    seed: int = 1

    def supply(self, nodes: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield, piece by piece and for ever, instants, nodes and speeds; nothing without noise.

        A piece ends with a step: steps and nodes are counted through, and the distance to the next noisy one
        is geometric.
        """
        if self.probability <= 0:
            return
        rng = np.random.default_rng([self.seed, 104_729])
        lowest = max(1, round(self.least * WHOLE))
        last = -1
        while True:
            places = last + np.cumsum(rng.geometric(self.probability, PIECE))
            last = int(places[-1])
            speeds = rng.integers(lowest, WHOLE + 1, PIECE)
            yield places // nodes * STEP_US, places % nodes, speeds


NO_NOISE_AT_ALL = Noise(probability=0.0)
