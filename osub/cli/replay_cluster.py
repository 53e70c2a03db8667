"""Which Slurm a command is about."""

from __future__ import annotations

import pwd
from pathlib import Path

from deploy.local.state import FILE, ClusterState, read_state
from osub.errors import ClusterError
from osub.slurm import CommandSlurm
from osub.trust import read_trusted

_CONF = "slurm.conf"


def find_cluster(folder: Path | None) -> tuple[CommandSlurm, ClusterState | None]:
    """Return a client, and the embedded cluster's state where ``folder`` holds one.

    Slurm's commands load the plugins that slurm.conf names: who can write it acts as whoever uses it.

    Raises
    ------
    ClusterError
        The folder has no slurm.conf.
    TrustError
        It is in the hands of somebody who is neither root nor Slurm's own user nor the caller.
    """
    if folder is None:
        return CommandSlurm(), None
    if folder.name == _CONF and folder.is_file():
        folder = folder.parent
    conf = folder.absolute() / _CONF
    if conf.is_symlink():
        raise ClusterError(f"{conf} is a link: give --cluster the folder that has the file itself")
    try:
        read_trusted(conf, also=_slurm_user())
    except FileNotFoundError as error:
        raise ClusterError(
            f"{folder} has no slurm.conf: name the folder of an embedded cluster (`osub cluster up "
            "--state DIR` makes one), or leave --cluster out for this host's own Slurm"
        ) from error
    except OSError as error:
        raise ClusterError(f"cannot read {conf}: {error.strerror}") from error
    return CommandSlurm(conf), read_state(folder) if (folder / FILE).exists() else None


def _slurm_user() -> frozenset[int]:
    try:
        return frozenset({pwd.getpwnam("slurm").pw_uid})
    except KeyError:
        return frozenset()
