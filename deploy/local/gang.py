"""Gangd on an embedded cluster: one controller, one agent a node, started by their commands."""

from __future__ import annotations

from deploy.local.host import Host
from deploy.local.layout import Layout
from osub.errors import UsageError


def prepare_gang(layout: Layout, host: Host) -> None:
    """Make keys and configuration of the controller and the agents."""
    raise UsageError(f"--gang osub is not available on {host.name} ({layout.cluster_name}) in this version")


def gang_daemons(layout: Layout, host: Host) -> dict[str, list[str]]:
    """Return the command of each daemon by role."""
    raise UsageError(f"--gang osub is not available on {host.name} ({layout.cluster_name}) in this version")
