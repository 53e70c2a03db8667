"""What a run is given: jobs, with their lifecycles and sizes; nodes, and when they fail."""

from __future__ import annotations

from simulator.world.job_sizes import Amdahl, Downey, Efficiencies, Fractions, SizeConversion, read_sizes
from simulator.world.node_outages import Failing, Outage, read_outages
from simulator.world.simulated_job import PLAIN_LIFE, JobLifecycle, JobLives, SimulatedJob, Sizes
from simulator.world.simulated_system import (
    MOST_MULTIPLICITY,
    NodePool,
    PoolQueues,
    System,
    multiple_queues,
    node_names,
    nodes_of_share,
    single_queue,
)

__all__ = [
    "MOST_MULTIPLICITY",
    "PLAIN_LIFE",
    "Amdahl",
    "Downey",
    "Efficiencies",
    "Failing",
    "Fractions",
    "JobLifecycle",
    "JobLives",
    "NodePool",
    "Outage",
    "PoolQueues",
    "SimulatedJob",
    "SizeConversion",
    "Sizes",
    "System",
    "multiple_queues",
    "node_names",
    "nodes_of_share",
    "read_outages",
    "read_sizes",
    "single_queue",
]
