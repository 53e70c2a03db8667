"""What a placement is, to the engine and to a user who writes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from simulator.engine.state.cluster_view import PoolState
from simulator.world import SimulatedJob

Cores: TypeAlias = Mapping[int, Sequence[int]]
"""Core ids by node index."""


class PlacementRule(Protocol):
    """Which cores a job gets."""

    def place(self, cluster: PoolState, job: SimulatedJob) -> Cores | None:
        """Return the cores that ``job`` would get now, or None if it does not fit.

        Parameters
        ----------
        cluster
            Who holds what. It is not to be changed.
        job
            A job that waits.

        Returns
        -------
        Cores or None
            ``job.cores`` different core ids with a free slot on each of ``job.nodes`` nodes with the memory.
        """
        ...
