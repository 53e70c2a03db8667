"""Refuse what does not fit into memory before it is touched and the kernel kills for it."""

from __future__ import annotations

from pathlib import Path

from osub.errors import HostError
from workloads.rrba.grid import Grid

MEMORY = Path("/proc/meminfo")


def check_fits(grid: Grid, needed_bytes: int, memory: Path = MEMORY) -> None:
    """Check that ``needed_bytes`` are available on this host.

    Raises
    ------
    HostError
        They are not; the message says how much there is. A host that does not tell is trusted.
    """
    try:
        lines = memory.read_text(encoding="ascii").splitlines()
        available_kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return
    if needed_bytes > available_kib * 1024:
        raise HostError(
            f"grid {grid} needs {needed_bytes >> 20} MiB a rank, {available_kib // 1024} MiB are available; "
            "choose a smaller --grid or more ranks"
        )
