"""The built-in placements as plug-ins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simulator.engine.state.cluster_view import Cluster
from simulator.placement import builtin_placement as builtin
from simulator.placement import thesis_placement as thesis
from simulator.placement.placement_rule import Cores
from simulator.world import Job


@dataclass(frozen=True, slots=True)
class ThesisPlacement:
    """Least occupied nodes, then least occupied cores; see ``simulator.placement.thesis_placement``."""

    def place(self, cluster: Cluster, job: Job) -> Cores | None:
        """See ``Placement``."""
        return cluster.cores_of(job.index) if thesis.place(cluster.state, job.index) else None


@dataclass(frozen=True, slots=True)
class SlurmPlacement:
    """Slurm's ``CR_Core,CR_LLN``: idle cores on the least loaded nodes, else row by row; see ``slurm``."""

    keeps_rows: ClassVar[bool] = True

    def place(self, cluster: Cluster, job: Job) -> Cores | None:
        """See ``Placement``."""
        return cluster.cores_of(job.index) if builtin.place(cluster.state, job.index) else None
