"""The environment in which Slurm's commands run: what they print and do must not depend on the caller's.

Variables such as SQUEUE_FORMAT, SBATCH_PARTITION, SCANCEL_STATE or SLURM_TIME_FORMAT change what a command
prints or does; TZ and the locale change how times read. Sources: the pages squeue(1), sbatch(1), scancel(1),
scontrol(1) and sinfo(1), ENVIRONMENT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_OF_SLURM = re.compile(
    r"(?:SLURM|SLURMD|SLURMCTLD|SBATCH|SALLOC|SRUN|SQUEUE|SINFO|SCANCEL|SCONTROL|SACCT|SACCTMGR|SSTAT|SPRIO"
    r"|SSHARE|SREPORT|SDIAG|STRIGGER|SATTACH|SBCAST|SCRONTAB|SVIEW)_"
)
_WHOM_TO_ASK = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
"""Which Slurm is asked, and by whom: the caller's choice, unlike how the answer looks."""


def without_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without Slurm's own variables."""
    return {key: value for key, value in environment.items() if not _OF_SLURM.match(key)}


def command_environment(caller: Mapping[str, str], conf: Path | None) -> dict[str, str]:
    """Return the environment for a command of Slurm.

    Parameters
    ----------
    caller
        This process's environment.
    conf
        The cluster's ``slurm.conf``; None keeps the caller's choice.
    """
    kept = {key: caller[key] for key in _WHOM_TO_ASK if key in caller}
    ours = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    chosen = {"SLURM_CONF": str(conf)} if conf else {}
    return without_slurm(caller) | kept | ours | chosen


def submit_environment(job: Mapping[str, str], commands: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for ``sbatch``, which hands it on to the job.

    The job's own, and no more of ``commands`` (from :func:`command_environment`) than ``sbatch`` needs.
    """
    needed = (*_WHOM_TO_ASK, "PATH")
    return without_slurm(job) | {key: commands[key] for key in needed if key in commands}
