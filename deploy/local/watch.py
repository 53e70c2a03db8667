"""Watching who uses this host's CPUs while an embedded cluster runs jobs: a sample a second."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from deploy.local.layout import names_of
from deploy.local.members import find_members, kin_of
from deploy.local.own_time import OwnTime, ProcessTime, read_process_times
from deploy.local.processes import read_facts
from deploy.local.state import ClusterState
from foundation.cpu_time import CpuTime, cpu_time
from foundation.records import HostRecord

SAMPLE_S = 1.0
LOOK_S = 0.45
"""Between two looks at the processes: what ended unseen in between was at most so long."""


class HostWatch:
    """Tells who used the CPUs of a cluster's nodes since it was last asked, about once a second.

    Parameters
    ----------
    state
        The cluster.
    own_pid
        The process that replays, whose time is the run's, too.
    read_cpus, read_processes, monotonic
        The kernel and the clock.
    """

    def __init__(
        self,
        state: ClusterState,
        own_pid: int,
        *,
        read_cpus: Callable[[frozenset[int]], CpuTime | None] = cpu_time,
        read_processes: Callable[[], Mapping[int, ProcessTime]] = read_process_times,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        pinned = frozenset(cpu for node in state.layout.nodes for cpu in node.cpus)
        self._cpus = pinned or frozenset(os.sched_getaffinity(0))
        self._read_cpus, self._read_processes, self._monotonic = read_cpus, read_processes, monotonic
        home = Path(state.layout.state).resolve()
        kin = kin_of(names_of(home), home, Path(state.layout.short))

        def belongs(pid: int) -> bool:
            if pid == own_pid:
                return True
            facts = read_facts(pid)
            return facts is not None and bool(find_members([facts], kin))

        self._own = OwnTime(belongs)
        self._looked = self._began = monotonic()
        self._before = read_cpus(self._cpus)
        self._own.look(read_processes())
        self._own_s = 0.0

    def __call__(self, at_s: float) -> HostRecord | None:
        """Return a sample that ends at this instant of the run; None where none is due or known."""
        now = self._monotonic()
        if now - self._looked < LOOK_S:
            return None
        self._looked = now
        self._own_s += self._own.look(self._read_processes())
        length_s = now - self._began
        if length_s < SAMPLE_S:
            return None
        after = self._read_cpus(self._cpus)
        before, own_s = self._before, self._own_s
        self._began, self._before, self._own_s = now, after, 0.0
        if before is None or after is None or at_s < 0:
            return None
        used = after.since(before)
        return HostRecord(
            at_s=round(at_s, 3),
            length_s=round(length_s, 3),
            host=platform.node() or "localhost",
            cpus=len(self._cpus),
            load=round(os.getloadavg()[0], 2),
            used_s=round(used.used_s, 3),
            steal_s=round(used.steal_s, 3),
            own_s=round(own_s, 3) if self._own.is_known else None,
        )
