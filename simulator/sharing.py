"""How fast jobs run on cores that they share: built-in sharing models, or a user's.

Equal shares with an overhead: the speed on a core of m busy jobs is 1/(m x C_o), and 1 for m = 1.

Source: thesis sections 5.2.2 (C_o = 1) and 6.3.2 (C_o = 1.2).

Sharing that depends on who shares: a matrix of slowdowns between applications.

``slowdown[a, b]`` is by how much an application of class ``a`` is slowed on a core by one of class ``b``: 2
where the two take turns, less where one leaves the other time, more where they also hurt each other. Several
others add up: ``1 + sum(slowdown - 1)``, which is m where every pair has 2.

Nodes that differ a little: each node's speed times a factor of its own, drawn once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from foundation.errors import UsageError
from simulator.jit.field_records import Ints
from simulator.model.jobs import SimulatedJob
from simulator.model.system import MOST_MULTIPLICITY
from simulator.state.engine_state import ONE


class SharingModel(Protocol):
    """How fast a job runs on a core that it shares.

    The engine asks again whenever a job that shares a core starts, ends, wakes or falls idle. A job runs at
    the speed of its slowest core.
    """

    @property
    def scale(self) -> int:
        """Units of work that a job on dedicated cores does in a microsecond.

        Speeds are rounded to whole units a microsecond, half to even, and to at least 1.
        """

    def core_speed(self, job: SimulatedJob, others: Sequence[SimulatedJob], node: int) -> float | Fraction:
        """Return the speed of ``job`` on one of its cores, 1 being that on a dedicated one.

        Parameters
        ----------
        job
            The job, which is busy.
        others
            The other busy jobs on that core, in order of job number; none is the common case.
        node
            Index of the node.
        """


class SharingTables(NamedTuple):
    """A built-in model as numbers for the kernels.

    ``speeds[m]`` in units a microsecond, ``excess[a, b]`` (None unless the model is pairwise) and
    ``factors[n]`` in parts of ``ONE`` (see ``simulator.state.engine_state``).
    """

    scale: int
    speeds: Ints
    excess: Ints | None
    factors: Ints


@runtime_checkable
class BuiltinSharing(Protocol):
    """A model that kernels know."""

    def tables(self, multiplicity: int, first_node: int, nodes: int) -> SharingTables:
        """Return the model for ``nodes`` nodes from ``first_node``, at most ``multiplicity`` jobs a core."""


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


__all__ = ["BuiltinSharing", "NoisyNodes", "Pairwise", "Proportional", "SharingModel", "SharingTables"]
