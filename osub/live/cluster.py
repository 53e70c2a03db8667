"""Which Slurm a command is about."""

from __future__ import annotations

import os
from pathlib import Path

from deploy.compose.cluster import holds_one
from deploy.local.state import FILE, ClusterState, read_state
from foundation.errors import ClusterError
from foundation.slurm import CommandSlurm
from foundation.slurm.site_configuration import check_conf
from foundation.slurm.slurm_types import SlurmRefusedError

_CONF = "slurm.conf"


def find_cluster(folder: Path | None) -> tuple[CommandSlurm, ClusterState | None]:
    """Return a client, and the embedded cluster's state where ``folder`` holds one.

    Raises
    ------
    ClusterError
        The folder has no slurm.conf.
    TrustError
        A user who is neither root nor Slurm's own user nor the caller can write it.
    """
    if folder is None:
        return CommandSlurm(), None
    conf = conf_in(folder)
    folder = conf.parent
    return CommandSlurm(conf), read_state(folder) if (folder / FILE).exists() else None


def conf_in(folder: Path) -> Path:
    """Return the slurm.conf in ``folder``, or ``folder`` itself if it is one.

    Raises
    ------
    ClusterError
        There is none.
    TrustError
        A user who is neither root nor Slurm's own user nor the caller can write it.
    """
    if folder.name == _CONF and folder.is_file():
        folder = folder.parent
    if folder.is_file():
        raise ClusterError(f"{folder} is a file: --cluster names a folder with slurm.conf")
    conf = folder.absolute() / _CONF
    try:
        check_conf(conf)
    except FileNotFoundError as error:
        if holds_one(folder):
            raise ClusterError(
                f"{folder} is a cluster in containers, whose Slurm this command does not reach: where it has "
                "an option --engine, it makes a cluster of its own; else run it in the controller's container"
            ) from error
        raise ClusterError(
            f"{folder} has no slurm.conf: name the folder of an embedded cluster (`osub cluster up "
            "--state DIR` makes one), or leave --cluster out for this host's own Slurm"
        ) from error
    return conf


def meet(client: CommandSlurm) -> None:
    """Ask Slurm anything at all, so that a host without one says so.

    Raises
    ------
    ClusterError
        There is none, or it does not answer.
    """
    try:
        client.config()
    except SlurmRefusedError as error:
        if "configuration source" not in str(error):
            raise
        raise ClusterError(
            "this host belongs to no Slurm: --cluster names the folder of an embedded one, which "
            "`osub cluster up --state DIR` makes"
        ) from error


def client_of(folder: Path | None) -> CommandSlurm:
    """Return a client of a Slurm that answers; see ``find_cluster`` and ``meet`` for what it raises."""
    client, _ = find_cluster(folder)
    meet(client)
    return client


def default_state() -> Path:
    """Return the default folder of a cluster: in the user's own state."""
    own = os.environ.get("XDG_STATE_HOME", "")
    base = Path(own) if own.startswith("/") else Path.home() / ".local" / "state"
    return base / "osub" / "cluster"
