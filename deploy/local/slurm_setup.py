"""What an embedded cluster's Slurm is given: its configuration as text, and its daemons' commands by role.

Sources: slurm.conf(5), cgroup.conf(5). ``gang`` has the commands of the gang scheduler.
"""

from __future__ import annotations

from deploy.local.host import CgroupVersion, LocalHost
from deploy.local.layout import ClusterLayout
from deploy.shape import GangKind, QueueKind, Shape
from deploy.slurm_lines import common_lines, with_settings

# Virtual nodes declare the memory of the nodes in the thesis's Table 7.1.
_VIRTUAL_NODE_MIB = 65_536
_PHYSICAL_SHARE = 0.9
HEALTH_CHECK_S = 30
"""How long a job stays frozen at most once agent, guardian and controller were killed at once."""


def node_memory_mib(shape: Shape, host: LocalHost) -> int:
    """Return the memory one node declares, MiB: an equal part of 90 % of the host's."""
    return _VIRTUAL_NODE_MIB if shape.virtual else int(host.memory_mib * _PHYSICAL_SHARE) // shape.nodes


def slurm_conf(shape: Shape, host: LocalHost, layout: ClusterLayout) -> str:
    """Return slurm.conf."""
    memory = node_memory_mib(shape, host)
    most = max(shape.multiplicity, shape.multiplicity_interactive if shape.queues is QueueKind.MQ else 1)
    tracked = host.cgroup is not CgroupVersion.NONE
    # NoInAddrAny binds daemons to the address of the host's name, whatever NodeAddr is.
    listen = {"CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny"} if host.name_is_loopback else {}
    lines = common_lines(shape, layout.cluster_name) | {
        "SlurmctldHost": f"{host.name}(127.0.0.1)",
        "SlurmctldPort": str(layout.controller_port),
        **listen,
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
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": str(layout.job_completions),
        "ProctrackType": "proctrack/cgroup" if tracked else "proctrack/linuxproc",
        "JobAcctGatherType": "jobacct_gather/cgroup" if tracked else "jobacct_gather/linux",
    }
    if shape.gang is GangKind.OSUB:
        lines |= {
            "HealthCheckProgram": str(layout.health_check),
            "HealthCheckInterval": str(HEALTH_CHECK_S),
            "HealthCheckNodeState": "ANY",
        }
    lines = with_settings({key: _quoted(value) for key, value in lines.items()}, shape.settings)
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


def _quoted(value: str) -> str:
    """Return a value of slurm.conf, in quotes where it has a blank, such as a path of a user's."""
    return f'"{value}"' if " " in value else value


def _partitions(shape: Shape, layout: ClusterLayout, memory_per_cpu_mib: int) -> list[str]:
    names = [node.name for node in layout.nodes]
    split = shape.interactive_count
    if shape.queues is QueueKind.SQ:
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


def cgroup_conf(host: LocalHost) -> str:
    """Return cgroup.conf: processes are tracked, nothing is constrained."""
    plugin = "cgroup/v2" if host.cgroup is CgroupVersion.V2 else "cgroup/v1"
    systemd = "IgnoreSystemd=yes\n" if host.cgroup is CgroupVersion.V2 else ""
    return (
        f"CgroupPlugin={plugin}\n{systemd}CgroupMountpoint=/sys/fs/cgroup\n"
        "CgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=no\nConstrainDevices=no\n"
    )


def munged_command(host: LocalHost, layout: ClusterLayout) -> dict[str, list[str]]:
    """Return munged's command."""
    run = layout.run
    words = [
        *_promptly(host),
        host.programs["munged"],
        "--foreground",
        "--force",  # the folder above may be private to its owner, which munged would warn of and leave
        f"--socket={layout.munge_socket}",
        f"--key-file={layout.munge_key}",
        f"--pid-file={run}/munged.pid",
        f"--seed-file={run}/munged.seed",
        f"--log-file={layout.logs}/munged.log",
        "--num-threads=2",
    ]
    return {"munged": words}


def slurm_commands(host: LocalHost, layout: ClusterLayout) -> dict[str, list[str]]:
    """Return the commands of slurmctld and of every slurmd."""
    roles = {"slurmctld": [*_promptly(host), host.programs["slurmctld"], "-D", "-f", str(layout.conf)]}
    for node in layout.nodes:
        slurmd = [host.programs["slurmd"], "-D", "-f", str(layout.conf), "-N", node.name]
        roles[f"slurmd {node.name}"] = host.pinned(node.cpus) + slurmd
    return roles


def _promptly(host: LocalHost) -> list[str]:
    """Let a service answer while the jobs keep every CPU of this host busy; on a cluster it has its own."""
    return [host.programs["nice"], "-n", "-10"] if host.is_root else []
