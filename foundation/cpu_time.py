"""This host's CPUs: their times so far, and priority on them.

Times are seconds since boot, as psutil reads them from the kernel. Source: proc(5), ``/proc/stat``. Time spent
on a guest is in ``user`` already.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

_NICENESS = -10


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds of some CPUs since boot, all of them together.

    Attributes
    ----------
    used_s
        Used by anybody here.
    steal_s
        Taken by the hypervisor while somebody here wanted them.
    whole_s
        All of their time, idle time included.
    """

    used_s: float
    steal_s: float
    whole_s: float

    def since(self, before: CpuTime) -> CpuTime:
        """Return what was added after ``before``; the kernel's counters may step back by a tick."""
        return CpuTime(
            max(0.0, self.used_s - before.used_s),
            max(0.0, self.steal_s - before.steal_s),
            max(0.0, self.whole_s - before.whole_s),
        )


def cpu_time(cpus: Iterable[int] | None = None) -> CpuTime | None:
    """Return the time of these CPUs, of all by default; None where the kernel does not tell."""
    try:
        times = psutil.cpu_times(percpu=True)
        some = times if cpus is None else [times[cpu] for cpu in cpus]
    except (OSError, ValueError, IndexError, RuntimeError):
        return None
    used = steal = whole = 0.0
    for one in some:
        mine = one.user + one.nice + one.system + one.irq + one.softirq
        used += mine
        steal += one.steal
        whole += mine + one.steal + one.idle + one.iowait
    return CpuTime(used, steal, whole)


@contextmanager
def promptly() -> Iterator[None]:
    """Put this process before others (niceness -10) where it shares their CPUs and the system permits it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, min(before, _NICENESS))
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
