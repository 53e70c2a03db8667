"""The embedded cluster: a real Slurm on this host, each node pinned to its own CPUs.

Start reading at ``cluster`` (up, status, down); ``shape`` says what a cluster looks like,
``host`` what this host offers.
"""

from deploy.local.cluster import LocalCluster
from deploy.shape import GangKind, HoldSetting, QueueKind, Scheduler, Shape, fitting_shape, natural_shape
