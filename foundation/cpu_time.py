"""Who used this host's CPUs so far: seconds since boot, as psutil reads them from the kernel.

Source: proc(5), ``/proc/stat``. Time spent on a guest is in ``user`` already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds of some CPUs since boot, all of them together.

    Attributes
    ----------
    used_s
        Used by anybody here.
    steal_s
        Taken by the hypervisor while a process of this host wanted them.
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
