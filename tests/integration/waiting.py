"""Waiting for a condition with a deadline."""

from __future__ import annotations

import json
from contextlib import suppress

from deploy.local.gang import status_folder
from deploy.local.layout import ClusterLayout

REVOKED_S = 2.0
"""How long after its end a job that Slurm has put back is not to start.

Nodes know in whole seconds when a job's credential was revoked, and refuse one that was made in that second.
So Slurm itself lets two minutes pass.
"""


def agents_joined(layout: ClusterLayout) -> bool:
    """Return whether the controller has heard from the agent of every node."""
    with suppress(OSError, ValueError, KeyError):
        status = json.loads((status_folder(layout) / "status.json").read_bytes())
        joined = {node["node"] for node in status["nodes"] if node["agent"].lower() == "joined"}
        return joined >= {node.name for node in layout.nodes}
    return False
