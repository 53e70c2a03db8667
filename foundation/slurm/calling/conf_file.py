"""Whose a slurm.conf must be: Slurm's commands load the plugins that it names."""

from __future__ import annotations

import pwd
from pathlib import Path

from foundation.errors import ClusterError
from foundation.trust import behind_links, read_trusted

_SLURM_USER = "slurm"


def check_conf(conf: Path) -> None:
    """Make sure that only root, the account ``slurm`` or the caller could have written a slurm.conf.

    Whoever else could acts as whoever uses it.

    Raises
    ------
    FileNotFoundError
        It is not there.
    ClusterError
        It cannot be read.
    TrustError
        It is in the hands of somebody else; the message says whose.
    """
    also = _slurm_user()
    try:
        read_trusted(behind_links(conf, also), also=also)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ClusterError(f"cannot read {conf}: {error.strerror}") from error


def _slurm_user() -> frozenset[int]:
    try:
        return frozenset({pwd.getpwnam(_SLURM_USER).pw_uid})
    except KeyError:
        return frozenset()
