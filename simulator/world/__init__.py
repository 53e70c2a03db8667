"""What a run is given: jobs, with their lives and sizes; nodes, and when they fail."""

from __future__ import annotations

from simulator.world.job_sizes import Amdahl, Conversion, Downey, Efficiencies, Fractions, read_sizes
from simulator.world.node_outages import Failing, Outage, read_outages
from simulator.world.simulated_job import PLAIN_LIFE, Job, JobLives, Life, Sizes
from simulator.world.simulated_system import (
    MOST_MULTIPLICITY,
    Pool,
    Queues,
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
    "Conversion",
    "Downey",
    "Efficiencies",
    "Failing",
    "Fractions",
    "Job",
    "JobLives",
    "Life",
    "Outage",
    "Pool",
    "Queues",
    "Sizes",
    "System",
    "multiple_queues",
    "node_names",
    "nodes_of_share",
    "read_outages",
    "read_sizes",
    "single_queue",
]
