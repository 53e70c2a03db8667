"""Refuse what does not fit into memory before it is touched and the kernel kills for it."""

from __future__ import annotations

from pathlib import Path

from foundation.errors import HostError
from workloads.rrba.cuts.slabs import Grid
from workloads.task.host_memory import MEMORY, available_bytes


def check_fits(grid: Grid, rank_bytes: int, ranks_here: int = 1, memory: Path = MEMORY) -> None:
    """Check that this host has ``rank_bytes`` for each of the job's ``ranks_here`` ranks on it.

    Raises
    ------
    HostError
        It has not; the message says how much there is. A host that does not tell is trusted.
    """
    available = available_bytes(memory)
    if available is not None and rank_bytes * ranks_here > available:
        raise HostError(
            f"grid {grid} needs {rank_bytes >> 20} MiB a rank, {ranks_here} of them here, and "
            f"{available >> 20} MiB are available; choose a smaller --grid or --class, or more hosts"
        )
