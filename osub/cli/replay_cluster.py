"""Which Slurm a command is about."""

from __future__ import annotations

from pathlib import Path

from deploy.local.state import ClusterState, read_state
from osub.errors import ClusterError
from osub.slurm import CommandSlurm


def find_cluster(folder: Path | None) -> tuple[CommandSlurm, ClusterState | None]:
    """Return a client, and the embedded cluster's state where ``folder`` holds one.

    Raises
    ------
    ClusterError
        The folder has no slurm.conf.
    """
    if folder is None:
        return CommandSlurm(), None
    conf = folder.resolve() / "slurm.conf"
    if not conf.exists():
        raise ClusterError(f"{folder} has no slurm.conf: `osub cluster up --state {folder}` makes a cluster")
    return CommandSlurm(conf), read_state(folder)
