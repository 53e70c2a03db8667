"""Nodes that differ a little: each node's speed times a factor of its own, drawn once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from foundation.errors import UsageError
from simulator.engine.state.engine_state import ONE
from simulator.sharing.pairwise_sharing import Pairwise
from simulator.sharing.proportional_sharing import Proportional
from simulator.sharing.sharing_model import SharingTables
from simulator.world import SimulatedJob

_LEAST, _MOST = 0.5, 1.5


@dataclass(frozen=True, slots=True, eq=False)
class NoisyNodes:
    """Another built-in model on nodes that differ.

    Parameters
    ----------
    model
        The model that holds on each node.
    factors
        Speed of each node of the system, 1 being the nominal one; shape (nodes,).
    """

    model: Proportional | Pairwise
    factors: npt.NDArray[np.float64]

    @classmethod
    def draw(cls, model: Proportional | Pairwise, nodes: int, deviation: float, seed: int) -> NoisyNodes:
        """Draw factors from a normal distribution around 1, cut at 0.5 and 1.5.

        Raises
        ------
        UsageError
            The deviation is negative or above 0.2.
        """
        if not 0 <= deviation <= 0.2:
            raise UsageError(
                f"a node noise of {deviation:g} is not possible: choose a deviation from 0 to 0.2"
            )
        drawn = np.random.default_rng(seed).normal(1.0, deviation, nodes)
        return cls(model, np.clip(drawn, _LEAST, _MOST))

    @property
    def scale(self) -> int:
        """See ``SharingModel``."""
        return self.model.scale * -(-ONE // self.model.scale)

    @property
    def _fixed(self) -> npt.NDArray[np.int64]:
        return np.rint(self.factors * ONE).astype(np.int64)

    def core_speed(self, job: SimulatedJob, others: Sequence[SimulatedJob], node: int) -> Fraction:
        """See ``SharingModel``."""
        units = int(self.model.core_speed(job, others, node) * self.scale)
        return Fraction(units * int(self._fixed[node]) // ONE, self.scale)

    def tables(self, multiplicity: int, first_node: int, nodes: int) -> SharingTables:
        """See ``BuiltinSharing``."""
        plain = self.model.tables(multiplicity, first_node, nodes)
        return plain._replace(
            scale=self.scale,
            speeds=plain.speeds * (self.scale // plain.scale),
            factors=self._fixed[first_node : first_node + nodes],
        )
