"""How busy this host is, before something is measured on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from foundation.cpu_time import CpuTime, cpu_time

LOOK_S = 0.4
CALM = 0.2
"""Others that use up to this share of the CPUs change what is measured by less than the host's own drift."""


def busy_share(over_s: float = LOOK_S, read: Callable[[], CpuTime | None] = cpu_time) -> float | None:
    """Return the share of the host's CPU time that is used in the next ``over_s`` seconds, or stolen in them.

    None where the kernel does not tell.
    """
    before = read()
    time.sleep(over_s)
    after = read()
    if before is None or after is None:
        return None
    passed = after.since(before)
    return (passed.used_s + passed.steal_s) / passed.whole_s if passed.whole_s > 0 else None


def busy_warning() -> str | None:
    """Return what to say where others use this host's CPUs now; None where it is calm."""
    share = busy_share()
    if share is None or share <= CALM:
        return None
    return (
        f"this host is busy: others use {share:.0%} of its CPUs now (load {os.getloadavg()[0]:.1f}); what is "
        "measured meanwhile is of them, too"
    )
