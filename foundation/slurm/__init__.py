"""The one view of Slurm: jobs with node and core ids, nodes, partitions, and the few verbs we need.

``SlurmClient`` (in ``slurm_client``) is the protocol that everything else is written against.
``CommandSlurm`` speaks to a live cluster through Slurm's commands; what it reads from which of them, and what
it does not believe, is in ``reading.job_sources`` and in docs/slurm.md.
``FakeSlurm`` is an in-memory cluster for tests that refuses what it does not know.
"""

from foundation.slurm.command_slurm import CommandSlurm
from foundation.slurm.fake_slurm import FakeSlurm
from foundation.slurm.slurm_client import Receiver, SlurmClient, SubmitRequest
from foundation.slurm.slurm_types import (
    Difference,
    Job,
    JobSnapshot,
    JobState,
    Node,
    NodeCores,
    Partition,
    Reservation,
    UnreadableJob,
)

__all__ = [
    "CommandSlurm",
    "Difference",
    "FakeSlurm",
    "Job",
    "JobSnapshot",
    "JobState",
    "Node",
    "NodeCores",
    "Partition",
    "Receiver",
    "Reservation",
    "SlurmClient",
    "SubmitRequest",
    "UnreadableJob",
]
