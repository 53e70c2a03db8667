"""The one view of Slurm: jobs with node and core ids, nodes, partitions, and the few verbs we need.

``SlurmClient`` (in ``slurm_client``) is the protocol that everything else is written against.
``CommandSlurm`` speaks to a live cluster through Slurm's commands; what it reads from which of them, and what
it does not believe, is in ``job_sources`` and in docs/slurm.md.
"""

from foundation.slurm.command_slurm import CommandSlurm
from foundation.slurm.slurm_client import Receiver, SlurmClient, SubmitRequest
from foundation.slurm.slurm_types import (
    JobSnapshot,
    NodeCores,
    Partition,
    Reservation,
    SlurmJob,
    SlurmJobState,
    SlurmNode,
    SnapshotDifference,
    UnreadableJob,
)
