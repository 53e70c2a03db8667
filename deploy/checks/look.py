"""Asks a live Slurm how it is set up."""

from __future__ import annotations

from deploy.checks.configuration import Configuration
from foundation.slurm import SlurmClient


def look(client: SlurmClient, freeze_cap_s: float, lease_s: float) -> Configuration:
    """Return the configuration; raises what ``SlurmClient`` does."""
    return Configuration(client.config(), client.partitions(), client.nodes(), freeze_cap_s, lease_s)
