"""CPU time and run-queue delay of a job's processes, cheaply.

CPU time comes from the step's accounting cgroup if there is one, else from each process's CPU clock (one
system call, all threads, nanoseconds; clock_getcpuclockid(3)). Run-queue delay is the second number of
``/proc/<pid>/task/<tid>/schedstat`` (Documentation/scheduler/sched-stats.rst), read from files kept open.
A reading costs microseconds a process; a job is read no more often than ``MIN_SPAN_NS``, and never so often
that reading would take more than 1/``COST_SHARE`` of a core.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field

MIN_SPAN_NS = 200_000_000
COST_SHARE = 400
THREADS_NS = 1_000_000_000
MAX_THREADS = 256
_CPUCLOCK_SCHED = 2


@dataclass(frozen=True, slots=True)
class Reading:
    """Sums over a job's processes since they were first seen (ns), and how many processes there are."""

    cpu_ns: int
    delay_ns: int
    tasks: int


@dataclass(slots=True)
class _Process:
    """One process: last CPU time (None: not known yet), schedstat files by thread, last delay of each."""

    cpu_ns: int | None
    threads: dict[str, int] = field(default_factory=dict)
    delays: dict[str, int] = field(default_factory=dict)


class UsageMeter:
    """Accumulates the use of one job on this node over processes that come and go."""

    def __init__(self) -> None:
        self._processes: dict[int, _Process] = {}
        self._cgroup_ns: dict[str, int] = {}
        self._cpu_ns = 0
        self._delay_ns = 0
        self._next_ns = 0
        self._threads_ns = 0

    def due(self, now_ns: int) -> bool:
        """Whether enough time has passed since the last reading."""
        return now_ns >= self._next_ns

    def watch(self, pids: tuple[int, ...]) -> None:
        """Set the job's processes; those that are gone keep what they have used.

        New threads of known processes are looked for once a second.
        """
        now_ns = time.monotonic_ns()
        if self._processes.keys() == set(pids) and now_ns < self._threads_ns:
            return
        self._threads_ns = now_ns + THREADS_NS
        for pid in self._processes.keys() - set(pids):
            _close(self._processes.pop(pid))
        born = 0 if self._next_ns else None  # of a process born since the last reading, everything counts
        threads = sum(len(process.threads) for process in self._processes.values())
        for pid in pids:
            process = self._processes.setdefault(pid, _Process(born))
            threads += _open_threads(pid, process, MAX_THREADS - threads)

    def read(self, cgroups_ns: dict[str, int], now_ns: int | None = None) -> Reading:
        """Read all processes now; ``cgroups_ns`` is the CPU time of each accounting cgroup, if any."""
        begin_ns = time.monotonic_ns()
        now_ns = begin_ns if now_ns is None else now_ns
        for process in self._processes.values():
            self._delay_ns += _delay_since(process)
        if cgroups_ns:
            for name, used_ns in cgroups_ns.items():
                before_ns = self._cgroup_ns.get(name, 0 if self._cgroup_ns else used_ns)
                self._cpu_ns += max(0, used_ns - before_ns)
            self._cgroup_ns = cgroups_ns
        else:
            for pid, process in self._processes.items():
                self._cpu_ns += _cpu_since(pid, process)
        end_ns = time.monotonic_ns()
        self._next_ns = now_ns + max(MIN_SPAN_NS, (end_ns - begin_ns) * COST_SHARE)
        return Reading(self._cpu_ns, self._delay_ns, len(self._processes))

    def close(self) -> None:
        """Close all files."""
        for process in self._processes.values():
            _close(process)
        self._processes.clear()


def _cpu_since(pid: int, process: _Process) -> int:
    try:
        now_ns = time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:  # it has ended
        return 0
    last_ns, process.cpu_ns = process.cpu_ns, now_ns
    return 0 if last_ns is None else max(0, now_ns - last_ns)


def _delay_since(process: _Process) -> int:
    total = 0
    for name, fd in process.threads.items():
        try:
            delay = int(os.pread(fd, 96, 0).split(None, 2)[1])
        except (OSError, IndexError, ValueError):  # the thread has ended
            continue
        last = process.delays.get(name)
        process.delays[name] = delay
        if last is not None:
            total += max(0, delay - last)
    return total


def _open_threads(pid: int, process: _Process, room: int) -> int:
    """Open the schedstat files of new threads, close those of ended ones; returns how many were opened."""
    folder = f"/proc/{pid}/task"
    try:
        if process.threads and os.stat(folder).st_nlink == len(process.threads) + 2:  # noqa: PTH116 (quick)
            return 0
        with os.scandir(folder) as entries:
            names = {entry.name for entry in entries}
    except OSError:
        return 0
    for name in [name for name in process.threads if name not in names]:
        os.close(process.threads.pop(name))
        process.delays.pop(name, None)
    opened = 0
    for name in sorted(names - process.threads.keys())[: max(0, room)]:
        with contextlib.suppress(OSError):
            process.threads[name] = os.open(f"{folder}/{name}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            opened += 1
    return opened


def _close(process: _Process) -> None:
    for fd in process.threads.values():
        os.close(fd)
    process.threads.clear()
