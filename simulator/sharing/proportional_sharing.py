"""Equal shares with an overhead: the speed on a core of m busy jobs is 1/(m x C_o), and 1 for m = 1.

Source: thesis sections 5.2.2 (C_o = 1) and 6.3.2 (C_o = 1.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from foundation.errors import UsageError
from simulator.engine.state.engine_state import ONE
from simulator.sharing.sharing_model import SharingTables
from simulator.world import MOST_MULTIPLICITY, SimulatedJob

_SHARES = math.lcm(*range(1, MOST_MULTIPLICITY + 1))


@dataclass(frozen=True, slots=True)
class Proportional:
    """The thesis's model. All of its speeds are whole numbers of units, so that progress is exact.

    Parameters
    ----------
    overhead
        C_o, at least 1.
    """

    overhead: Fraction

    def __post_init__(self) -> None:
        if self.overhead < 1:
            raise UsageError(f"an overhead of {float(self.overhead):g} is not possible: C_o is at least 1")

    @classmethod
    def of(cls, overhead: float | str) -> Proportional:
        """Return the model for an overhead as it is written: ``1.2`` is 6/5.

        Raises
        ------
        UsageError
            It is not a number of at least 1.
        """
        try:
            return cls(Fraction(str(overhead)))
        except ValueError:
            raise UsageError(f"{overhead!r} is not an overhead: write a number such as 1.2") from None

    @property
    def scale(self) -> int:
        """See ``SharingModel``."""
        return _SHARES * self.overhead.numerator

    def core_speed(self, job: SimulatedJob, others: Sequence[SimulatedJob], node: int) -> Fraction:  # noqa: ARG002
        """See ``SharingModel``."""
        return 1 / ((len(others) + 1) * self.overhead) if others else Fraction(1)

    def tables(self, multiplicity: int, first_node: int, nodes: int) -> SharingTables:  # noqa: ARG002
        """See ``BuiltinSharing``; where no core is shared a unit is a microsecond's work."""
        scale = self.scale if multiplicity > 1 else 1
        shared = [int(scale / (busy * self.overhead)) for busy in range(2, multiplicity + 1)]
        return SharingTables(
            scale=scale,
            speeds=np.array([0, scale, *shared], dtype=np.int64),
            excess=None,
            factors=np.full(nodes, ONE, dtype=np.int64),
        )
