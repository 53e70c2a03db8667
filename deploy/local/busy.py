"""How busy this host is, before something is measured on it."""

from __future__ import annotations

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
LOOK_S = 0.4
CALM = 0.2
"""Others that use up to this share of the CPUs change what is measured by less than the host's own drift."""

_IDLE, _IOWAIT, _COUNTED = 3, 4, 8


def busy_share(over_s: float = LOOK_S, stat: Path = STAT) -> float | None:
    """Return the share of the host's CPU time that is used in the next ``over_s`` seconds, or stolen in them.

    None where the kernel does not tell (see proc_stat(5)).
    """
    before = _ticks(stat)
    time.sleep(over_s)
    after = _ticks(stat)
    if before is None or after is None or after[1] <= before[1]:
        return None
    return min(1.0, max(0.0, (after[0] - before[0]) / (after[1] - before[1])))


def busy_warning() -> str | None:
    """Return what to say where others use this host's CPUs now; None where it is calm."""
    share = busy_share()
    if share is None or share <= CALM:
        return None
    return (
        f"this host is busy: others use {share:.0%} of its CPUs now (load {os.getloadavg()[0]:.1f}); what is "
        "measured meanwhile is of them, too"
    )


def _ticks(stat: Path) -> tuple[int, int] | None:
    """Return ticks used and ticks in all, over all CPUs."""
    try:
        first = stat.read_text(encoding="ascii").split("\n", 1)[0].split()
        numbers = [int(word) for word in first[1 : 1 + _COUNTED]]
    except (OSError, ValueError):
        return None
    if first[:1] != ["cpu"] or len(numbers) < _COUNTED:
        return None
    whole = sum(numbers)
    return whole - numbers[_IDLE] - numbers[_IOWAIT], whole
