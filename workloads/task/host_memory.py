"""How much memory this host has to give, so that what does not fit is refused before it is touched."""

from __future__ import annotations

from pathlib import Path

MEMORY = Path("/proc/meminfo")


def available_bytes(memory: Path = MEMORY) -> int | None:
    """Return what can be allocated without swapping (``MemAvailable``, proc(5)); None where none tells."""
    try:
        lines = memory.read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
