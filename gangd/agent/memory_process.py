"""Memory of a node and its jobs, measured and paged out by a process of its own, at ordinary priority.

The agent's loop runs before everything else and never waits for a disk. So files of the kernel that take a
process's lock (``smaps_rollup``), and pages that go to swap, are the work of this process. The loop says
which processes jobs have, which jobs are frozen and which run next; it is sent what was measured. Where this
process dies memory counts for nothing until it has been started again.

*Available* is what /proc/meminfo says, or what the memory cgroups above the jobs leave, where that is less: a
node may be a container. *A job's memory* is that of its memory cgroup, without file cache that can be dropped
at once; where it has none, the proportional set sizes (PSS) of its processes. Its peak is the largest that
was measured, or the cgroup's own less the most file cache that was measured.

*Paging out*: where there is swap and less is available than the bound, of frozen jobs that do not run for
``SOON_NS``, by ``process_madvise(MADV_PAGEOUT)`` (Linux 5.10).
A job that was paged out is read in again before it runs (``MADV_WILLNEED``), for ``AHEAD_NS`` at most.

Standard library only: it is started as the guardian is.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foundation.errors import HostError
from foundation.trust import closing_fd
from gangd.guardian.spawn import start_helper

SAMPLE_NS, REST = 250_000_000, 20
"""A round of measuring begins so often, or as seldom as it takes 1/REST of a core."""
SOON_NS, AHEAD_NS = 1_000_000_000, 500_000_000
CHUNK = 16 << 20
"""Bytes that are paged by one call: between two, what the loop says now counts."""
MOST_PIECES = 65_536
_PIDFD_OPEN, _PROCESS_MADVISE, _WILLNEED, _PAGEOUT = 434, 440, 3, 21
_KIB = 1024
_JOB = re.compile(r"/job_([0-9]+)(?=/|$)")
_MAP = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .w.p [0-9a-f]+ \S+ 0 *(\[heap\]|\[stack\]|\[anon\S*|)\n")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "memory.peak", "inactive_file")


class MemoryTask(NamedTuple):
    """What the loop says.

    Attributes
    ----------
    pids
        Processes of the jobs.
    frozen, coming
        Jobs that are frozen, and those of them that run next.
    coming_ns, lasts_ns
        When that is, and for how long they run at least.
    reclaim_kib
        Where less is available frozen jobs are paged out; 0: nothing is.
    """

    pids: Mapping[int, Sequence[int]]
    frozen: frozenset[int] = frozenset()
    coming: frozenset[int] = frozenset()
    coming_ns: int = 0
    lasts_ns: int = 0
    reclaim_kib: int = 0


class MeasuredMemory(NamedTuple):
    """What was measured, in KiB; ``jobs`` has memory and peak of each; ``paged`` is what was paged out."""

    available: int
    stall: float | None
    stalled_us: int
    jobs: tuple[tuple[int, int, int], ...]
    paged: int = 0


class MemoryReader:
    """Reads the kernel's files.

    Parameters
    ----------
    proc, cgroups
        Where processes and cgroup hierarchies are mounted.
    """

    def __init__(self, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        v1 = cgroups / "memory"
        self._is_v1 = v1.is_dir()
        self._root = v1 if self._is_v1 else cgroups
        self._files = _V1 if self._is_v1 else _V2
        self._peaks: dict[int, int] = {}
        self._caches: dict[int, int] = {}
        self.has_swap = False
        """Whether there was swap left when this was measured last."""

    def measure(self, pids: Mapping[int, Sequence[int]]) -> MeasuredMemory:
        """Measure the node and these jobs; a job that is not named any more is forgotten."""
        above = {self.cgroup("self")}
        jobs = []
        for job, processes in pids.items():
            folder = next(filter(None, (self.cgroup(pid) for pid in processes)), None)
            if folder is not None:
                above.add(folder)
            own = self.of_job(job, folder)
            used, peak = (self._sizes(own, job) if own else None) or (self._pss(processes), 0)
            jobs.append((job, used, max(used, peak, self._peaks.get(job, 0))))
        self._peaks = {job: peak for job, _, peak in jobs}
        self._caches = {job: cache for job, cache in self._caches.items() if job in pids}
        folders = {ancestor for folder in above if folder for ancestor in self._above_jobs(folder)}
        left = [kib for kib in map(self._left, folders) if kib is not None]
        meminfo = _fields(self._proc / "meminfo")
        self.has_swap = meminfo.get("SwapFree", 0) > CHUNK // _KIB
        stall, stalled_us = self._pressure()
        return MeasuredMemory(min([meminfo.get("MemAvailable", 0), *left]), stall, stalled_us, tuple(jobs))

    def cgroup(self, pid: int | str) -> Path | None:
        """Return the memory cgroup of a process; None if it has none that can be seen."""
        for line in _text(self._proc / str(pid) / "cgroup").splitlines():
            _, names, path = line.split(":", 2)
            if "memory" in names.split(",") if self._is_v1 else not names:
                return self._root / path.strip("/")
        return None

    @staticmethod
    def of_job(job: int, folder: Path | None) -> Path | None:
        """Return the folder of a job that a process of it is in; None if its cgroup is not Slurm's."""
        found = [one for one in _JOB.finditer(str(folder or "")) if one[1] == str(job)]
        return Path(str(folder)[: found[-1].end()]) if found else None

    def regions(self, pid: int) -> list[tuple[int, int]]:
        """Return begin and end of the memory of a process that only swap can take."""
        return [
            (int(one[1], 16), int(one[2], 16)) for one in _MAP.finditer(_text(self._proc / str(pid) / "maps"))
        ]

    def _above_jobs(self, folder: Path) -> Iterator[Path]:
        """Yield the cgroups that bound all jobs together, not one of them alone."""
        found = _JOB.search(str(folder))
        one = folder if found is None else Path(str(folder)[: found.start()])
        while one.is_relative_to(self._root):
            yield one
            one = one.parent

    def _left(self, folder: Path) -> int | None:
        limit = _number(folder / self._files[0])
        used = _number(folder / self._files[1])
        if limit is None or used is None or limit >= 1 << 60:
            return None
        cache = _fields(folder / "memory.stat").get(self._files[3], 0)
        return max(0, limit - used + cache) // _KIB

    def _sizes(self, folder: Path, job: int) -> tuple[int, int] | None:
        """Return memory and peak of a job by its cgroup."""
        usage, peak = _number(folder / self._files[1]), _number(folder / self._files[2])
        if usage is None:
            return None
        stat = _fields(folder / "memory.stat")
        cache = stat.get("total_cache" if self._is_v1 else "file", 0)
        self._caches[job] = max(cache, self._caches.get(job, 0))
        used = max(0, usage - stat.get(self._files[3], 0))
        return used // _KIB, max(0, (peak or 0) - self._caches[job]) // _KIB

    def _pss(self, pids: Sequence[int]) -> int:
        total = 0
        for pid in pids:
            folder = self._proc / str(pid)
            kib = _fields(folder / "smaps_rollup").get("Pss")
            total += _fields(folder / "status").get("VmRSS", 0) if kib is None else kib
        return total

    def _pressure(self) -> tuple[float | None, int]:
        for line in _text(self._proc / "pressure" / "memory").splitlines():
            words = dict(word.split("=", 1) for word in line.split()[1:] if "=" in word)
            if line.startswith("some") and "avg10" in words:
                return min(1.0, float(words["avg10"]) / 100), int(words.get("total", 0))
        return None, 0


class Pager:
    """Pages frozen jobs out, a piece at a time, and those that run next in."""

    def __init__(self, reader: MemoryReader) -> None:
        self._reader = reader
        self._out: dict[int, list[tuple[int, int, int]]] = {}
        self._in: dict[int, list[tuple[int, int, int]]] = {}
        self.paged_kib = 0

    def due(self, task: MemoryTask, available_kib: int, now_ns: int) -> int | None:
        """Return the job of which a piece is to be paged now: in before it runs, else out; None for none."""
        for job in [*self._out, *self._in]:
            if job not in task.frozen and job not in task.coming:
                self._out.pop(job, None)
                self._in.pop(job, None)
        left_ns = task.coming_ns - now_ns
        if 0 < left_ns <= AHEAD_NS:
            comes = task.coming if task.lasts_ns >= AHEAD_NS else ()
            return next((job for job in comes if self._in.get(job)), None)
        if not task.reclaim_kib or available_kib >= task.reclaim_kib:
            return None
        far = [job for job in task.frozen if job not in task.coming or left_ns > SOON_NS]
        return next((job for job in sorted(far, reverse=True) if self._out.get(job, True)), None)

    def page(self, job: int, task: MemoryTask, now_ns: int) -> None:
        """Page one piece of a job."""
        comes = job in task.coming and task.coming_ns - now_ns <= AHEAD_NS
        if comes:
            pid, begin, size = self._in[job].pop(0)
            _advise(pid, begin, size, _WILLNEED)
            return
        if job not in self._out:
            self._out[job] = [
                (pid, at, min(CHUNK, end - at))
                for pid in task.pids.get(job, ())
                for begin, end in self._reader.regions(pid)
                for at in range(begin, end, CHUNK)
            ][:MOST_PIECES]
        if self._out[job]:
            piece = self._out[job].pop(0)
            if _advise(*piece, _PAGEOUT):
                self.paged_kib += piece[2] // _KIB
                self._in.setdefault(job, []).append(piece)


def _advise(pid: int, begin: int, size: int, advice: int) -> bool:
    """Advise the kernel on memory of another process; whether it took the advice."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = libc.syscall(_PIDFD_OPEN, pid, 0)
    if pidfd < 0:
        return False
    with closing_fd(pidfd):
        vector = ctypes.create_string_buffer(struct.pack("PN", begin, size), 16)
        return int(libc.syscall(_PROCESS_MADVISE, pidfd, vector, ctypes.c_size_t(1), advice, 0)) >= 0


def serve() -> None:
    """Measure and page until the agent is gone: the process's whole work."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("gang-memory")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reader, raw = MemoryReader(), b""
    pager = Pager(reader)
    task, next_ns = MemoryTask({}), 0
    measured: MeasuredMemory | None = None
    poller = select.poll()
    poller.register(0, select.POLLIN)
    while True:
        now_ns = time.monotonic_ns()
        job = None
        if measured is not None and reader.has_swap:
            job = pager.due(task, measured.available, now_ns)
        wait_ms = 0 if job is not None else max(0, next_ns - now_ns) // 1_000_000 + 1
        if poller.poll(wait_ms):
            some = os.read(0, 1 << 16)
            if not some:
                return
            *lines, raw = (raw + some).split(b"\n")
            if lines:
                task = _task(json.loads(lines[-1]))
        elif job is not None:
            pager.page(job, task, now_ns)
        if now_ns >= next_ns:
            measured = reader.measure(task.pids)._replace(paged=pager.paged_kib)
            os.write(1, json.dumps(measured).encode() + b"\n")
            next_ns = now_ns + max(SAMPLE_NS, REST * (time.monotonic_ns() - now_ns))


def _task(said: list[Any]) -> MemoryTask:
    pids, frozen, coming, *rest = said
    return MemoryTask(
        {int(job): tuple(own) for job, own in pids.items()}, frozenset(frozen), frozenset(coming), *rest
    )


class MemoryProcess:
    """The loop's side: ``tell`` and ``take`` never wait.

    Attributes
    ----------
    fd
        Readable when something was measured, and once the process is dead.
    """

    def __init__(self) -> None:
        try:
            self._child = start_helper(
                "from gangd.agent.memory_process import serve; serve()", pipes=subprocess.PIPE
            )
        except OSError as error:
            raise HostError(f"memory is not measured, no process can be started: {error.strerror}") from error
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self.fd = self._child.stdout.fileno()
        self._to = self._child.stdin.fileno()
        for fd in (self.fd, self._to):
            os.set_blocking(fd, False)
        self._said: MemoryTask | None = None
        self._unsaid = b""
        self._raw = b""

    def tell(self, task: MemoryTask) -> None:
        """Say what is to be measured and paged; what cannot be said now is said the next time."""
        if task == self._said and not self._unsaid:
            return
        if not self._unsaid:
            said = [dict(task.pids), [*task.frozen], [*task.coming], *task[3:]]
            self._unsaid, self._said = json.dumps(said).encode() + b"\n", task
        with contextlib.suppress(OSError):
            self._unsaid = self._unsaid[os.write(self._to, self._unsaid) :]

    def take(self) -> MeasuredMemory | None:
        """Return what was measured last, None for nothing new.

        Raises
        ------
        HostError
            The process is dead, or says what is none of its words: start another.
        """
        try:
            some = os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return None
        if not some:
            raise HostError("the process that measures memory is dead")
        *lines, self._raw = (self._raw + some).split(b"\n")
        if not lines:
            return None
        try:
            available, stall, stalled_us, jobs, paged = json.loads(lines[-1])
        except ValueError as error:
            raise HostError("the process that measures memory is out of order") from error
        return MeasuredMemory(available, stall, stalled_us, tuple(map(tuple, jobs)), paged)

    def close(self) -> None:
        """End it."""
        self._child.kill()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._child.wait()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:  # it has ended, or this kernel does not have it
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _fields(path: Path) -> dict[str, int]:
    """Return lines of a name and a number, as in meminfo, status and memory.stat."""
    found = {}
    for line in _text(path).splitlines():
        words = line.replace(":", " ").split()
        if len(words) > 1 and words[1].isdigit():
            found[words[0]] = int(words[1])
    return found
