"""What each shared job used in the time in which it ran, what was left to it, and what leaked.

Only time in which a job was not frozen counts as its span: a job that alternates between running and frozen
has one reading at the end of each of its slices, and what it uses between that reading and the next
thaw is a leak. A job that yields runs all the time: what it used while it was held is counted separately, by
its account when it was held and when it was let go.

``UsageMeter`` reads CPU time and run-queue delay of a job's processes, cheaply. CPU time comes from the
step's accounting cgroup if there is one, else from each process's CPU clock (one system call, all threads,
nanoseconds; clock_getcpuclockid(3)). Run-queue delay is the second number of
``/proc/<pid>/task/<tid>/schedstat`` (Documentation/scheduler/sched-stats.rst), read from files kept open. A
reading costs microseconds a process; a job is read no more often than ``MIN_SPAN_NS``, and never so often
that reading would take more than 1/``COST_SHARE`` of a core.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from gangd.freezer.procfs import WORK, has_spare_files
from gangd.wire import JobSample

STEADY_SHARE = 0.5
STEADY_NS = 4_000_000_000
"""A job that used more than this share of a core in all samples of so long goes on so, as a rule."""
LEAK_NOISE_NS = 200_000
"""Less than this within one hold is the freeze taking effect, not a leak."""

MIN_SPAN_NS = 200_000_000
COST_SHARE = 400
THREADS_NS = 1_000_000_000
MAX_THREADS = 256
_CPUCLOCK_SCHED = 2


@dataclass(frozen=True, slots=True)
class MeterSums:
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
            WORK.pause_if_spent()
            process = self._processes.setdefault(pid, _Process(born))
            if threads >= MAX_THREADS and not process.threads:
                continue
            threads += _open_threads(pid, process, MAX_THREADS - threads)

    def read(self, cgroups_ns: dict[str, int], now_ns: int | None = None) -> MeterSums:
        """Read all processes now; ``cgroups_ns`` is the CPU time of each accounting cgroup, if any."""
        begin_ns = time.monotonic_ns()
        now_ns = begin_ns if now_ns is None else now_ns
        for process in self._processes.values():
            WORK.pause_if_spent()
            self._delay_ns += _delay_since(process)
        if cgroups_ns:
            for name, used_ns in cgroups_ns.items():
                before_ns = self._cgroup_ns.get(name, 0 if self._cgroup_ns else used_ns)
                self._cpu_ns += max(0, used_ns - before_ns)
            self._cgroup_ns = cgroups_ns
        else:
            for pid, process in self._processes.items():
                WORK.pause_if_spent()
                self._cpu_ns += _cpu_since(pid, process)
        end_ns = time.monotonic_ns()
        self._next_ns = now_ns + max(MIN_SPAN_NS, (end_ns - begin_ns) * COST_SHARE)
        return MeterSums(self._cpu_ns, self._delay_ns, len(self._processes))

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


def _open_threads(pid: int, process: _Process, limit: int) -> int:
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
    for name in sorted(names - process.threads.keys())[: max(0, limit)]:
        with contextlib.suppress(OSError):
            fd = os.open(f"{folder}/{name}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            if not has_spare_files(fd):
                os.close(fd)
                break
            process.threads[name] = fd
            opened += 1
    return opened


def _close(process: _Process) -> None:
    for fd in process.threads.values():
        os.close(fd)
    process.threads.clear()


@dataclass(slots=True)
class _MeteredJob:
    meter: UsageMeter = field(default_factory=UsageMeter)
    last: MeterSums | None = None
    ran_ns: int = 0  # time neither frozen nor yielding since the last reading, up to since_ns
    since_ns: int = 0
    held: bool = False  # frozen
    fresh_hold: bool = False  # frozen, and read since: what it uses now leaks
    yields: bool = False  # when it is held
    low: bool = False  # held, and yields
    low_ns: int = 0  # time in which it yielded since the last reading, up to since_ns
    left_ns: int = 0  # CPU time that it used in that time
    turned_ns: int = 0  # when it was last held or let go
    mark_ns: int | None = None  # its account then, or when it was read since
    unreported_ns: int = 0  # CPU time that was read, and belongs to the next report
    steady_ns: int | None = None  # since when it was clearly busy in all samples

    def advance(self, now_ns: int, used_ns: int | None = None) -> None:
        """Count the time that has passed, and what it used while it yielded."""
        passed_ns = max(0, now_ns - self.since_ns)
        if self.low:
            self.low_ns += passed_ns
            self.left_ns += self.since_mark(used_ns)
        elif not self.held:
            self.ran_ns += passed_ns
        self.since_ns, self.mark_ns = now_ns, used_ns

    def judge(self, used_ns: int, ran_ns: int, now_ns: int) -> None:
        """Note whether it was clearly busy while it ran; time in which it only yielded tells nothing."""
        if ran_ns and used_ns <= STEADY_SHARE * ran_ns:
            self.steady_ns = None
        elif ran_ns and self.steady_ns is None:
            self.steady_ns = now_ns

    def since_mark(self, used_ns: int | None) -> int:
        """CPU time since the mark; 0 where there is no account."""
        return 0 if used_ns is None or self.mark_ns is None else max(0, used_ns - self.mark_ns)


@dataclass(frozen=True, slots=True)
class Samples:
    """What a job did since the last reading: while it ran, and while it yielded; None for no such time."""

    own: JobSample | None = None
    leftover: JobSample | None = None


class JobMeters:
    """Meters of the jobs that the schedule names.

    Attributes
    ----------
    unseen
        Jobs of which not all is known, None for all jobs: they are not read, or they would look idle.
    """

    def __init__(self) -> None:
        self.unseen: frozenset[int] | None = frozenset()
        self._jobs: dict[int, _MeteredJob] = {}

    def track(self, pids_by_job: dict[int, tuple[int, ...]], now_ns: int) -> None:
        """Follow exactly these jobs with these processes."""
        for job in self._jobs.keys() - pids_by_job.keys():
            self._jobs.pop(job).meter.close()
        for job, pids in pids_by_job.items():
            WORK.pause_if_spent()
            if job not in self._jobs:
                self._jobs[job] = _MeteredJob(since_ns=now_ns)
            self._jobs[job].meter.watch(pids)

    def on_held(
        self, held: frozenset[int], yielding: frozenset[int], at_ns: int, used_ns: Mapping[int, int]
    ) -> None:
        """Note which jobs are held from ``at_ns`` on, and which of them yield; all others run.

        ``used_ns`` is what jobs that yield had used by then, where it is known.
        """
        for number, job in self._jobs.items():
            frozen, low = number in held - yielding, number in held & yielding
            job.yields = number in yielding
            if frozen is job.held and low is job.low:
                continue
            job.advance(at_ns, used_ns.get(number))
            if frozen is not job.held:
                job.held, job.fresh_hold = frozen, False
            job.low, job.turned_ns = low, at_ns

    def due(self, job: int, now_ns: int) -> bool:
        """Whether a job may be read again."""
        known = self._jobs.get(job)
        seen = self.unseen is not None and job not in self.unseen
        return seen and known is not None and known.meter.due(now_ns)

    def sample(
        self, job: int, cgroups_ns: dict[str, int], now_ns: int, begun_ns: int | None = None
    ) -> Samples:
        """Read a job that was not frozen; nothing at the first reading, which has nothing to compare with.

        A job that yields and was suspended or resumed when the slice that runs began, at ``begun_ns``, is
        reported up to then: its state differs since.
        """
        known = self._jobs[job]
        used_ns = sum(cgroups_ns.values()) if cgroups_ns else None
        turned = known.yields and begun_ns is not None and known.turned_ns >= begun_ns
        if not turned:
            known.advance(now_ns, used_ns)
        before, known.last = known.last, known.meter.read(cgroups_ns, now_ns)
        earlier_ns, known.unreported_ns = known.unreported_ns, known.since_mark(used_ns) if turned else 0
        ran_ns, known.ran_ns = known.ran_ns, 0
        low_ns, known.low_ns = known.low_ns, 0
        left_ns, known.left_ns = known.left_ns, 0
        known.fresh_hold = known.held
        if before is None or (known.yields and not ran_ns and not low_ns):
            return Samples()
        cpu_ns = max(0, known.last.cpu_ns - before.cpu_ns + earlier_ns - known.unreported_ns)
        delay_ns, tasks = known.last.delay_ns - before.delay_ns, known.last.tasks
        if used_ns is None:  # without an account: what is more than it can have used when it ran
            left_ns = max(0, cpu_ns - ran_ns * max(1, tasks))
        if not low_ns or not ran_ns:
            left_ns = cpu_ns if low_ns else 0
        left_ns = min(left_ns, cpu_ns)
        known.judge(cpu_ns - left_ns + delay_ns, ran_ns, now_ns)
        if not low_ns:
            return Samples(_sample(job, cpu_ns, delay_ns, ran_ns, tasks))
        # A yielding job waits; in its own slices no job precedes it.
        leftover = _sample(job, left_ns, delay_ns, low_ns, tasks, low_ns)
        return Samples(_sample(job, cpu_ns - left_ns, 0, ran_ns, tasks) if ran_ns else None, leftover)

    def is_steady(self, job: int, now_ns: int) -> bool:
        """Whether a job has been clearly busy for seconds."""
        known = self._jobs.get(job)
        return known is not None and known.steady_ns is not None and now_ns >= known.steady_ns + STEADY_NS

    def leak(self, job: int, cgroups_ns: dict[str, int]) -> int | None:
        """CPU time (ns) that a held job has used since it was read after its freeze; None for nothing."""
        known = self._jobs.get(job)
        if known is None or not known.held or not known.fresh_hold or known.last is None:
            return None
        before, known.last = known.last, known.meter.read(cgroups_ns)
        used_ns = known.last.cpu_ns - before.cpu_ns
        return used_ns if used_ns > LEAK_NOISE_NS else None

    def close(self) -> None:
        """Close all files."""
        for job in self._jobs.values():
            job.meter.close()
        self._jobs.clear()


def _sample(job: int, cpu_ns: int, delay_ns: int, span_ns: int, tasks: int, held_ns: int = 0) -> JobSample:
    return JobSample(
        job=job,
        cpu_us=cpu_ns // 1000,
        delay_us=delay_ns // 1000,
        span_us=span_ns // 1000,
        tasks=tasks,
        held_us=held_ns // 1000,
    )
