"""What a sharing model is, to the engine and to a user who writes one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol, runtime_checkable

from simulator.engine.kernels.field_records import Ints
from simulator.world import SimulatedJob


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
        ...

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
        ...


class SharingTables(NamedTuple):
    """A built-in model as numbers for the kernels.

    ``speeds[m]`` in units a microsecond, ``excess[a, b]`` (None unless the model is pairwise) and
    ``factors[n]`` in parts of ``ONE`` (see ``simulator.engine.state.engine_state``).
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
        ...
