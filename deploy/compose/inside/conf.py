"""Configuration of Slurm and gangd in containers, as text (slurm.conf(5), cgroup.conf(5), slurmdbd.conf(5)).

Nodes are dynamic (``slurmd -Z``): none is listed, they come with names from compose's DNS.
"""

from __future__ import annotations

from typing import Literal

from deploy.compose.inside.keys import OWN_METRICS_TOKEN
from deploy.compose.inside.settings import GANGD_METRICS_PORT, ContainerSettings
from deploy.shape import GangKind, QueueKind, common_lines, sharing_words, with_settings

Hierarchy = Literal["v1", "v2"]
HEALTH_CHECK = "/usr/local/sbin/osub-health-check"
SLURMD_TIMEOUT_S = 30
"""After so long without a word from a node (killed, or its network cut) Slurm calls it down."""


def slurm_conf(settings: ContainerSettings, hierarchy: Hierarchy) -> str:
    """Return slurm.conf."""
    shape = settings.shape
    lines = common_lines(shape, settings.cluster) | {
        "SlurmctldHost": "controller",
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "SlurmUser": "slurm",
        "StateSaveLocation": "/var/lib/slurm/state",
        "SlurmdSpoolDir": "/var/spool/slurmd/%n",
        "SlurmctldPidFile": "/run/slurm/slurmctld.pid",
        "SlurmdPidFile": "/run/slurm/slurmd.pid",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": "/var/lib/slurm/job-completions.log",
        "ProctrackType": "proctrack/cgroup",
        # With v1 the containers can write the freezer and no other hierarchy.
        "JobAcctGatherType": "jobacct_gather/cgroup" if hierarchy == "v2" else "jobacct_gather/linux",
        "MaxNodeCount": str(shape.nodes),
        # Nodes know each other's addresses from slurmctld alone: it talks to each of them itself.
        "TreeWidth": "65533",
        "SlurmdTimeout": str(SLURMD_TIMEOUT_S),
    }
    if hierarchy == "v2":
        lines["TaskPlugin"] = "task/cgroup"
    if settings.accounting:
        lines |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "accounting",
        }
    if shape.gang is GangKind.OSUB:
        lines |= {
            "HealthCheckProgram": HEALTH_CHECK,
            "HealthCheckInterval": "30",
            "HealthCheckNodeState": "ANY",
        }
    lines = with_settings(lines, shape.settings)
    text = ["# Written when the controller starts.", *(f"{key}={value}" for key, value in lines.items())]
    return "\n".join([*text, *_partitions(settings), ""])


def _partitions(settings: ContainerSettings) -> list[str]:
    shape = settings.shape
    most = shape.multiplicity
    if shape.queues is QueueKind.SQ:
        sets, parts = [], [("main", "ALL", most)]
    else:
        most = max(most, shape.multiplicity_interactive)
        sets = [f"NodeSet={name} Feature={name}" for name in ("batch", "interactive")]
        parts = [
            ("batch", "batch", shape.multiplicity),
            ("interactive", "interactive", shape.multiplicity_interactive),
        ]
    memory = max(1, settings.memory_mib // (shape.cores * shape.threads * most))
    return sets + [
        f"PartitionName={name} Nodes={nodes} Default={'YES' if index == 0 else 'NO'} "
        f"{sharing_words(jobs, memory)} MaxTime=UNLIMITED DefaultTime=UNLIMITED State=UP"
        for index, (name, nodes, jobs) in enumerate(parts)
    ]


def feature_of(settings: ContainerSettings, number: int) -> str:
    """Return the queue to which the node with a number from 1 on belongs."""
    return "interactive" if number <= settings.shape.interactive_count else "batch"


def node_options(settings: ContainerSettings, number: int) -> str:
    """Return what a node declares of itself (slurmd(8), ``--conf``)."""
    shape = settings.shape
    return (
        f"Sockets=1 CoresPerSocket={shape.cores} ThreadsPerCore={shape.threads} "
        f"RealMemory={settings.memory_mib} Feature={feature_of(settings, number)}"
    )


def cgroup_conf(hierarchy: Hierarchy, slurm_release: tuple[int, int]) -> str:
    """Return cgroup.conf: no systemd in a container; jobs are tracked, and with v2 their memory is bounded.

    Cores are not: nodes declare more of them than the host has, and sharing them is what the cluster is for.
    """
    if hierarchy == "v1":
        return "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n"
    controllers = "EnableControllers" if slurm_release >= (23, 2) else "CgroupAutomount"
    return (
        "CgroupPlugin=cgroup/v2\nCgroupMountpoint=/sys/fs/cgroup\nIgnoreSystemd=yes\n"
        f"{controllers}=yes\nConstrainRAMSpace=yes\n"
    )


def slurmdbd_conf(password: str) -> str:
    """Return slurmdbd.conf, which is a secret."""
    return (
        "AuthType=auth/munge\nDbdHost=accounting\nSlurmUser=slurm\nPidFile=/run/slurm/slurmdbd.pid\n"
        "StorageType=accounting_storage/mysql\nStorageHost=database\nStorageUser=slurm\n"
        f"StoragePass={password}\nStorageLoc=slurm_accounting\n"
    )


def gangd_toml(settings: ContainerSettings) -> str:
    """Return gangd's configuration."""
    shape = settings.shape
    return (
        'keys = "/etc/gangd/keys"\nstate = "/var/lib/gangd/state"\nrecord = "/var/lib/gangd/record"\n'
        f'hold = "{shape.hold}"\nquantum_ms = {shape.quantum_ms:g}\n'
        + (
            f'metrics = "0.0.0.0:{GANGD_METRICS_PORT}"\nmetrics_token = "{OWN_METRICS_TOKEN}"\n'
            if settings.monitoring
            else ""
        )
    )
