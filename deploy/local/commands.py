"""The commands of an embedded cluster's Slurm daemons, by role; ``gang`` has those of the gang scheduler."""

from __future__ import annotations

from deploy.local.host import Host
from deploy.local.layout import Layout


def munged_command(host: Host, layout: Layout) -> dict[str, list[str]]:
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


def slurm_commands(host: Host, layout: Layout) -> dict[str, list[str]]:
    """Return the commands of slurmctld and of every slurmd."""
    roles = {"slurmctld": [*_promptly(host), host.programs["slurmctld"], "-D", "-f", str(layout.conf)]}
    for node in layout.nodes:
        slurmd = [host.programs["slurmd"], "-D", "-f", str(layout.conf), "-N", node.name]
        roles[f"slurmd {node.name}"] = host.pinned(node.cpus) + slurmd
    return roles


def _promptly(host: Host) -> list[str]:
    """Let a service answer while the jobs keep every CPU of this host busy; on a cluster it has its own."""
    return [host.programs["nice"], "-n", "-10"] if host.is_root else []
