"""The system that a user names: N12C12, or ``host`` for the cluster that fits this host."""

from __future__ import annotations

import psutil

from deploy.shape import natural_shape
from simulator.model.system import System

HOST = "host"


def system_named(text: str) -> System:
    """Return the system that ``text`` names; UsageError for what names none."""
    if text != HOST:
        return System.parse(text)
    return System(*natural_shape(psutil.cpu_count() or 1))


def size_named(text: str | None) -> tuple[int, int] | None:
    """Return its nodes and cores a node; None stays."""
    if text is None:
        return None
    system = system_named(text)
    return system.nodes, system.cores
