"""Sharing that depends on who shares: a matrix of slowdowns between applications.

``slowdown[a, b]`` is by how much an application of class ``a`` is slowed on a core by one of class ``b``: 2
where the two take turns, less where one leaves the other time, more where they also hurt each other. Several
others add up: ``1 + sum(slowdown - 1)``, which is m where every pair has 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from foundation.errors import UsageError
from simulator.engine.state.engine_state import ONE
from simulator.sharing.sharing_model import SharingTables
from simulator.world import SimulatedJob


@dataclass(frozen=True, slots=True, eq=False)
class Pairwise:
    """The matrix, in fixed-point numbers of 17 binary places.

    Parameters
    ----------
    slowdown
        Shape (classes, classes), each at least 1.
    """

    slowdown: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.slowdown.ndim != 2 or len(set(self.slowdown.shape)) != 1 or self.slowdown.size == 0:
            raise UsageError(
                f"a pairwise model needs a square matrix, not one of shape {self.slowdown.shape}"
            )
        if not (np.isfinite(self.slowdown).all() and (self.slowdown >= 1).all()):
            raise UsageError("a pairwise model needs slowdowns of at least 1")

    @property
    def scale(self) -> int:
        """See ``SharingModel``."""
        return ONE

    @property
    def excess(self) -> npt.NDArray[np.int64]:
        """Slowdowns minus 1, in parts of ``ONE``."""
        return np.rint((self.slowdown - 1) * ONE).astype(np.int64)

    def core_speed(self, job: SimulatedJob, others: Sequence[SimulatedJob], node: int) -> Fraction:  # noqa: ARG002
        """See ``SharingModel``."""
        excess = sum(int(self.excess[job.app, other.app]) for other in others)
        return Fraction(self.scale * ONE // (ONE + excess), self.scale)

    def tables(self, multiplicity: int, first_node: int, nodes: int) -> SharingTables:  # noqa: ARG002
        """See ``BuiltinSharing``."""
        return SharingTables(
            scale=self.scale,
            speeds=np.zeros(multiplicity + 1, dtype=np.int64),
            excess=self.excess,
            factors=np.full(nodes, ONE, dtype=np.int64),
        )
