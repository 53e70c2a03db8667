"""Placements as plug-ins: the thesis's and Slurm's, and those that know what neighbours cost.

The latter are ``lln-paired`` and ``lln-apart``. Idle cores first, as ``lln``. Where a job has to share, it
goes to the cores whose holders and it lose least to each other, and to the nodes whose worst core is best.
``lln-paired`` never waits for better company: what fits under ``lln`` fits here. ``lln-apart`` does: with a
job which it harms, or which harms it, beyond a threshold, no job starts. It waits for other cores then; on a
cluster that empties it fits in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from simulator.engine.state.cluster_view import PoolState
from simulator.placement.builtin_placement import place, place_by_occupation
from simulator.placement.placement_rule import Cores
from simulator.world import SimulatedJob


@dataclass(frozen=True, slots=True)
class ThesisPlacement:
    """Least occupied nodes, then least occupied cores; see ``builtin_placement``."""

    def place(self, cluster: PoolState, job: SimulatedJob) -> Cores | None:
        """See ``PlacementRule``."""
        return cluster.cores_of(job.index) if place_by_occupation(cluster.state, job.index) else None


@dataclass(frozen=True, slots=True)
class SlurmPlacement:
    """Slurm's ``CR_Core,CR_LLN``: idle cores on the least loaded nodes, else row by row."""

    keeps_rows: ClassVar[bool] = True

    def place(self, cluster: PoolState, job: SimulatedJob) -> Cores | None:
        """See ``PlacementRule``."""
        return cluster.cores_of(job.index) if place(cluster.state, job.index) else None


@dataclass(frozen=True, slots=True, eq=False)
class PairedPlacement:
    """The placement.

    Parameters
    ----------
    loss
        E_v of each application with each other one, shape (A, A); ``SimulatedJob.app`` is a row of it.
    most
        No two jobs share cores of which one loses more; None: all may share.
    """

    loss: npt.NDArray[np.float64]
    most: float | None = None

    def place(self, cluster: PoolState, job: SimulatedJob) -> Cores | None:
        """See ``PlacementRule``."""
        own, other = self.loss[job.app], self.loss[:, job.app]
        harm = own + other
        if self.most is not None:
            harm = np.where(np.maximum(own, other) > self.most, np.inf, harm)
        state = cluster.state
        found: list[tuple[float, int, int, list[int]]] = []
        for node in range(cluster.nodes):
            if state.nodes[node].free < job.cores or state.nodes[node].free_kib < job.memory_kib:
                continue
            counts = cluster.jobs_a_core(node)
            if int((counts < cluster.multiplicity).sum()) < job.cores:
                continue
            costs = _costs(cluster, node, counts, harm)
            order = sorted(range(cluster.cores), key=lambda core: (costs[core], counts[core], core))
            if np.isinf(costs[order[job.cores - 1]]):
                continue
            chosen = sorted(order[: job.cores])
            found.append((max(costs[core] for core in chosen), int(counts.sum()), node, chosen))
        if len(found) < job.nodes:
            return None
        found.sort(key=lambda one: one[:3])
        return {node: chosen for _, _, node, chosen in sorted(found[: job.nodes], key=lambda one: one[2])}


def _costs(
    cluster: PoolState,
    node: int,
    counts: npt.NDArray[np.int64],
    harm: npt.NDArray[np.float64],
) -> list[float]:
    """Return what a job and the holders of each core would lose together; infinite where no slot is free."""
    costs = [0.0 if count < cluster.multiplicity else np.inf for count in counts.tolist()]
    if counts.any():
        apps = cluster.state.jobs
        for other, cores in cluster.holders(node).items():
            cost = float(harm[apps[other].app])
            for core in cores:
                costs[core] += cost
    return costs
