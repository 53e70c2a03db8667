"""Slurm's configuration for an embedded cluster, as text (slurm.conf(5), cgroup.conf(5))."""

from __future__ import annotations

import zlib

from deploy.local.host import CgroupVersion, Host
from deploy.local.layout import Layout
from deploy.local.shape import Gang, Queues, Scheduler, Shape

# Virtual nodes declare the memory of the nodes in the thesis's Table 7.1.
_VIRTUAL_NODE_MIB = 65_536
_PHYSICAL_SHARE = 0.9
HEALTH_CHECK_S = 30
"""How long a job stays frozen at most once agent, guardian and controller were killed at once."""
_JOB_RANGES, _JOBS_A_RANGE = 60_000, 1000


def node_memory_mib(shape: Shape, host: Host) -> int:
    """Return the memory one node declares, MiB: an equal part of 90 % of the host's."""
    return _VIRTUAL_NODE_MIB if shape.virtual else int(host.memory_mib * _PHYSICAL_SHARE) // shape.nodes


def slurm_conf(shape: Shape, host: Host, layout: Layout) -> str:
    """Return slurm.conf."""
    memory = node_memory_mib(shape, host)
    most = max(shape.multiplicity, shape.multiplicity_interactive if shape.queues is Queues.MQ else 1)
    tracked = host.cgroup is not CgroupVersion.NONE
    lines = {
        "ClusterName": layout.cluster_name,
        "SlurmctldHost": f"{host.name}(127.0.0.1)",
        "SlurmctldPort": str(layout.controller_port),
        "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket}",
        "CredType": "cred/munge",
        "SlurmUser": host.user,
        "SlurmdUser": host.user,
        "StateSaveLocation": str(layout.controller_state),
        "SlurmdSpoolDir": f"{layout.spool}/%n",
        "SlurmctldPidFile": f"{layout.run}/slurmctld.pid",
        "SlurmdPidFile": f"{layout.run}/slurmd-%n.pid",
        "SlurmctldLogFile": f"{layout.logs}/slurmctld.log",
        "SlurmdLogFile": f"{layout.logs}/slurmd-%n.log",
        "MailProg": "/bin/true",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "ReturnToService": "2",
        "JobRequeue": "0",
        "EnforcePartLimits": "ALL",
        "MaxJobCount": "200000",
        "MinJobAge": "3600",
        "FirstJobId": str(first_job_id(layout.cluster_name)),
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": str(layout.job_completions),
        "ProctrackType": "proctrack/cgroup" if tracked else "proctrack/linuxproc",
        "JobAcctGatherType": "jobacct_gather/cgroup" if tracked else "jobacct_gather/linux",
        "TaskPlugin": "task/none",
        "SlurmdParameters": "config_overrides",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory,CR_LLN",
        "SchedulerType": f"sched/{'backfill' if shape.scheduler is Scheduler.BACKFILL else 'builtin'}",
        "SchedulerParameters": "sched_interval=1,batch_sched_delay=1,bf_interval=1,bf_resolution=1,"
        "bf_job_part_count_reserve=1,default_queue_depth=10000",
        "PreemptType": "preempt/none",
        "PreemptMode": "GANG" if shape.gang is Gang.SLURM else "OFF",
        "SchedulerTimeSlice": "5",
    }
    if shape.gang is Gang.OSUB:
        lines |= {
            "HealthCheckProgram": str(layout.health_check),
            "HealthCheckInterval": str(HEALTH_CHECK_S),
            "HealthCheckNodeState": "ANY",
        }
    for setting in shape.settings:
        key, _, value = setting.partition("=")
        lines = {name: text for name, text in lines.items() if name.lower() != key.lower()}
        lines[key] = value
    nodes = [
        f"NodeName={node.name} NodeHostname={host.name} NodeAddr=127.0.0.1 Port={node.port} "
        f"Sockets=1 CoresPerSocket={shape.cores} ThreadsPerCore={shape.threads} RealMemory={memory} "
        "State=UNKNOWN"
        for node in layout.nodes
    ]
    return "\n".join(
        [
            "# Written by `osub cluster up`; lost on `osub cluster down`.",
            *(f"{key}={value}" for key, value in lines.items()),
            *nodes,
            *_partitions(shape, layout, max(1, memory // (shape.cores * shape.threads * most))),
            "",
        ]
    )


def first_job_id(cluster_name: str) -> int:
    """Return the number of a cluster's first job, another one for (almost) every cluster.

    MPICH names the shared memory of a job's ranks after Slurm's job and step and nothing else. Two clusters
    of one host that both count from 1 would have their jobs write into each other's messages.
    """
    return _JOBS_A_RANGE * (1 + zlib.crc32(cluster_name.encode()) % _JOB_RANGES) + 1


def _partitions(shape: Shape, layout: Layout, memory_per_cpu_mib: int) -> list[str]:
    names = [node.name for node in layout.nodes]
    split = shape.interactive_count
    if shape.queues is Queues.SQ:
        parts = [("main", names, shape.multiplicity)]
    else:
        parts = [
            ("batch", names[split:], shape.multiplicity),
            ("interactive", names[:split], shape.multiplicity_interactive),
        ]
    return [
        f"PartitionName={name} Nodes={','.join(members)} Default={'YES' if index == 0 else 'NO'} "
        f"OverSubscribe={f'FORCE:{most}' if most > 1 else 'NO'} DefMemPerCPU={memory_per_cpu_mib} "
        "MaxTime=UNLIMITED DefaultTime=UNLIMITED State=UP"
        for index, (name, members, most) in enumerate(parts)
    ]


def cgroup_conf(host: Host) -> str:
    """Return cgroup.conf: processes are tracked, nothing is constrained."""
    plugin = "cgroup/v2" if host.cgroup is CgroupVersion.V2 else "cgroup/v1"
    systemd = "IgnoreSystemd=yes\n" if host.cgroup is CgroupVersion.V2 else ""
    return (
        f"CgroupPlugin={plugin}\n{systemd}CgroupMountpoint=/sys/fs/cgroup\n"
        "CgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=no\nConstrainDevices=no\n"
    )
