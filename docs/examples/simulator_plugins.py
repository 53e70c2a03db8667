"""Plug-ins for ``osub simulate``: a queue policy, a placement and a sharing model of one's own.

    osub simulate TRACE --system N12C12 --multiplicity 2 --out RUN \
        --policy    docs/examples/simulator_plugins.py:ShortestFirst \
        --placement docs/examples/simulator_plugins.py:Packed \
        --sharing   docs/examples/simulator_plugins.py:FastWhenAlone

Each is a plain object with one method; any of the three can be left out. A run with a plug-in goes event by
event in Python: slower than a run with built-in rules, but the same engine. See docs/mechanisms.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.model.jobs import SimulatedJob
from simulator.placement import Cores
from simulator.policy_interface import SchedulerContext
from simulator.state.allocations import PoolState


class ShortestFirst:
    """The waiting job with the shortest requested time goes first; nothing overtakes it."""

    def schedule(self, context: SchedulerContext) -> None:
        """Make one scheduling pass; called after every arrival and every end."""
        while context.waiting:
            shortest = min(context.waiting, key=lambda job: (job.requested_us, job.number))
            if not context.start(shortest):
                return


class Packed:
    """The fullest nodes with room go first, and on them the lowest cores with a free slot."""

    def place(self, cluster: PoolState, job: SimulatedJob) -> Cores | None:
        """Return the cores by node, or None if the job does not fit now."""
        room = {}
        for node in range(cluster.nodes):
            jobs = cluster.jobs_a_core(node)
            free = [core for core in range(cluster.cores) if jobs[core] < cluster.multiplicity]
            if len(free) >= job.cores and cluster.free_memory_kib(node) >= job.memory_kib:
                room[node] = (-int(jobs.sum()), node, free[: job.cores])
        if len(room) < job.nodes:
            return None
        return {node: cores for _, node, cores in sorted(room.values())[: job.nodes]}


class FastWhenAlone:
    """A core that is shared does three quarters of its work, whoever shares it."""

    scale = 1_000_000

    def core_speed(self, job: SimulatedJob, others: Sequence[SimulatedJob], node: int) -> float:  # noqa: ARG002
        """Return the speed on one core; the slowest core of a job decides."""
        return 0.75 / (1 + len(others)) if others else 1.0
