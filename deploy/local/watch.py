"""Watching who uses this host's CPUs while a cluster on it runs jobs: a sample a second.

What of it is the cluster's own is added up from looks at living processes. A look tells what each of them
used, and what those of its children had used that it has waited for (proc(5), ``/proc/PID/stat``, fields 14
to 17). Between two looks processes end: what they used since the look before shows in the second figure of
the process that waited for them: the parent or, of orphans, the reaper.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.local.layout import names_of
from deploy.local.members import PROC, find_members, kin_of, read_facts
from deploy.local.state import ClusterState
from foundation.cpu_time import CpuTime, cpu_time
from foundation.process_stat import PARENT, START_TICKS, USER_TICKS, split_stat
from foundation.records import HostRecord

SAMPLE_S = 1.0
LAST_S = 0.1
"""The last sample of a run is at least so long: the kernel counts in hundredths of a second."""
LOOK_S = 0.45
"""Between two looks at the processes: what ended unseen in between was at most so long."""

_CONTAINER = re.compile("[0-9a-f]{64}")  # an engine names a container's cgroup by the container's number

YOUNG_LOOKS = 3
"""A process may become ours shortly after its start: when it is moved to a cgroup, or runs its program."""


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """What a living process has used so far.

    Attributes
    ----------
    parent
        Its parent's number.
    start_ticks
        When it began; with its number, its identity.
    self_s, waited_s
        CPU time of its own, and of ended children that it has waited for.
    """

    parent: int
    start_ticks: int
    self_s: float
    waited_s: float

    @property
    def whole_s(self) -> float:
        """Both."""
        return self.self_s + self.waited_s


class OwnTime:
    """Adds up the CPU time of those processes that belong to us, and of all that they start.

    Parameters
    ----------
    belongs
        Whether a process is ours, by its number; what it starts is ours anyway.
    """

    def __init__(self, belongs: Callable[[int], bool]) -> None:
        self._belongs = belongs
        self._before: dict[int, ProcessTime] | None = None
        self._ours: dict[int, int] = {}
        self._looks: dict[tuple[int, int], int] = {}
        self.is_known = False

    def look(self, living: Mapping[int, ProcessTime]) -> float:
        """Return the seconds used since the look before; 0 at the first one."""
        before, ours_before = self._before, self._ours
        self._before, self._ours = dict(living), self._recognise(living)
        self.is_known = self.is_known or bool(self._ours)
        if before is None:
            return 0.0
        gone = {pid: one for pid, one in before.items() if not _same(one, living.get(pid))}
        counted_s: dict[int, float] = {}
        parted: dict[int, list[bool]] = {}
        for pid, one in gone.items():
            heir = _heir(pid, before, gone)
            counted_s[heir] = counted_s.get(heir, 0.0) + one.whole_s
            parted.setdefault(heir, []).append(pid in ours_before)
        used_s = 0.0
        for pid, one in living.items():
            last = before.get(pid)
            if last is None or not _same(last, one):
                used_s += one.whole_s if pid in self._ours else 0.0
                continue
            inherited_s = max(0.0, one.waited_s - last.waited_s - counted_s.get(pid, 0.0))
            if pid in self._ours:
                used_s += max(0.0, one.self_s - last.self_s) + inherited_s
            elif any(children := parted.get(pid, ())):
                used_s += inherited_s * sum(children) / len(children)
        return used_s

    def _recognise(self, living: Mapping[int, ProcessTime]) -> dict[int, int]:
        """Return those that are ours, with their starts; parents come before what they start."""
        looks: dict[tuple[int, int], int] = {}
        ours: dict[int, int] = {}
        for pid, one in sorted(living.items(), key=lambda item: (item[1].start_ticks, item[0])):
            identity = pid, one.start_ticks
            age = looks[identity] = self._looks.get(identity, 0) + 1
            if (
                self._ours.get(pid) == one.start_ticks
                or one.parent in ours
                or (age <= YOUNG_LOOKS and self._belongs(pid))
            ):
                ours[pid] = one.start_ticks
        self._looks = looks
        return ours


def _same(one: ProcessTime, other: ProcessTime | None) -> bool:
    return other is not None and other.start_ticks == one.start_ticks


def _heir(pid: int, before: Mapping[int, ProcessTime], gone: Iterable[int]) -> int:
    """Return the nearest ancestor that runs on: it, or the one before it, waited for the process."""
    seen = set()
    while pid in gone and pid not in seen:
        seen.add(pid)
        pid = before[pid].parent
    return pid


def read_process_times(proc: Path = PROC) -> dict[int, ProcessTime]:
    """Return what every living process has used; zombies are still to be waited for."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    found: dict[int, ProcessTime] = {}
    for name in os.listdir(proc):  # noqa: PTH208 - several times a second
        if not name.isdigit():
            continue
        with suppress(OSError, ValueError):
            _, fields = split_stat((proc / name / "stat").read_bytes())
            user, system, waited_user, waited_system = map(int, fields[USER_TICKS : USER_TICKS + 4])
            found[int(name)] = ProcessTime(
                parent=int(fields[PARENT]),
                start_ticks=int(fields[START_TICKS]),
                self_s=(user + system) / ticks_per_s,
                waited_s=(waited_user + waited_system) / ticks_per_s,
            )
    return found


class HostWatch:
    """Tells who used the CPUs of a cluster's nodes since it was last asked, about once a second.

    Parameters
    ----------
    cpus
        Those of the nodes; none: all that this process may use.
    belongs
        Whether a process is the cluster's, by its number; what it starts is anyway. This process, which
        replays, and what it starts is the run's, too.
    read_cpus, read_processes, monotonic
        The kernel and the clock.
    """

    def __init__(
        self,
        cpus: frozenset[int],
        belongs: Callable[[int], bool],
        *,
        read_cpus: Callable[[frozenset[int]], CpuTime | None] = cpu_time,
        read_processes: Callable[[], Mapping[int, ProcessTime]] = read_process_times,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cpus = cpus or frozenset(os.sched_getaffinity(0))
        self._read_cpus, self._read_processes, self._monotonic = read_cpus, read_processes, monotonic
        own = os.getpid()
        self._own = OwnTime(lambda pid: pid == own or belongs(pid))
        self._looked = self._began = monotonic()
        self._before = read_cpus(self._cpus)
        self._own.look(read_processes())
        self._own_s = 0.0

    def __call__(self, at_s: float, *, last: bool = False) -> HostRecord | None:
        """Return a sample that ends at this instant of the run; None where none is due or known.

        The ``last`` one of a run is shorter than a second.
        """
        now = self._monotonic()
        if not last and now - self._looked < LOOK_S:
            return None
        self._looked = now
        self._own_s += self._own.look(self._read_processes())
        length_s = now - self._began
        if length_s < (LAST_S if last else SAMPLE_S):
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


def watch_embedded(state: ClusterState) -> HostWatch:
    """Return the watch of an embedded cluster."""
    home = Path(state.layout.state).resolve()
    kin = kin_of(names_of(home), home, Path(state.layout.short))

    def belongs(pid: int) -> bool:
        facts = read_facts(pid)
        return facts is not None and bool(find_members([facts], kin))

    return HostWatch(frozenset(cpu for node in state.layout.nodes for cpu in node.cpus), belongs)


def watch_containers(ids: frozenset[str], cpus: frozenset[int]) -> HostWatch | None:
    """Return the watch of a cluster in containers, known by their cgroups; None for another host's.

    Parameters
    ----------
    ids
        The containers, by their whole numbers.
    cpus
        As ``HostWatch`` has them.
    """

    def is_in_one(pid: int) -> bool:
        try:
            cgroups = Path(PROC, str(pid), "cgroup").read_text()
        except OSError:
            return False
        return not ids.isdisjoint(_CONTAINER.findall(cgroups))

    if not any(is_in_one(pid) for pid in read_process_times()):
        return None
    return HostWatch(cpus, is_in_one)
