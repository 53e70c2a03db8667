"""Slurm's configuration: whose the file must be, and what of it a RUN keeps.

Slurm's commands load the plugins that a slurm.conf names, so a user who can write it can act as the user who
runs them. A RUN keeps what of it says when jobs start.
"""

from __future__ import annotations

import pwd
from collections.abc import Mapping
from pathlib import Path

from foundation.errors import ClusterError
from foundation.one_line import one_line
from foundation.trust import behind_links, read_trusted

_SLURM_USER = "slurm"

_KEYS = frozenset(
    {
        "AccountingStorageType",
        "CompleteWait",
        "Epilog",
        "EpilogMsgTime",
        "EpilogSlurmctld",
        "KillWait",
        "OverTimeLimit",
        "PreemptMode",
        "PreemptType",
        "Prolog",
        "PrologFlags",
        "PrologSlurmctld",
        "SelectType",
        "SelectTypeParameters",
    }
)
_PREFIXES = ("Scheduler", "Priority")
_LONGEST = 2048


def check_conf(conf: Path) -> None:
    """Make sure that only root, the account ``slurm`` or the caller could have written a slurm.conf.

    Another user who can write it can act as the caller.

    Raises
    ------
    FileNotFoundError
        It is not there.
    ClusterError
        It cannot be read.
    TrustError
        Another user can write it; the message names the user.
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


def scheduling_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return what of ``scontrol show config`` says when jobs start, in the order of its keys.

    Parameters
    ----------
    config
        All of it; what an operator wrote in it comes as one printable line of bounded length.
    """
    return {
        key: one_line(value, _LONGEST)
        for key, value in sorted(config.items())
        if key in _KEYS or key.startswith(_PREFIXES)
    }
