"""What each shared job used in the time in which it ran, what was left to it, and what leaked.

Only time in which a job was not frozen counts as its span: a job that alternates between running and frozen
has one reading at the end of each of its slices, and what it uses between that reading and the next
thaw is a leak. A job that yields runs all the time: what it used while it was held is counted separately, by
its account when it was held and when it was let go.

What a job used while it was held, by freezing or yielding, and what Slurm's daemons computed for its launches
meanwhile, it owes to those that waited in their slices (``SliceDebts``), and pays with the ends of its own.

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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gangd.freezer.procfs import WORK, has_spare_files, process_ns
from gangd.wire.messages import JobSample

STEADY_SHARE = 0.5
STEADY_NS = 4_000_000_000
"""A job that used more than this share of a core in all samples of so long goes on so, as a rule."""
LEAK_NOISE_NS = 200_000
"""Less than this within one hold is the freeze taking effect, not a leak."""
LEAST_DEBT_NS, LEAST_DEBT_SHARE, MOST_DEBT_SHARE = 3_000_000, 1 / 50, 7 / 8
"""What is less, or less than this share of a slice, is paid later; no more than that share of one is paid."""
MOST_DEBT_NS = 2_000_000_000
LOOSE_SHARE, LOOSE_NS = 0.1, 10_000_000_000
"""A job that used more than this share of a core while it was frozen yields for so long."""

MIN_SPAN_NS = 200_000_000
COST_SHARE = 400
THREADS_NS = 1_000_000_000
MAX_THREADS = 256


@dataclass(frozen=True, slots=True)
class CpuClocks:
    """What the agent's own work has cost (ns): of the calling thread, and of all threads."""

    thread: Callable[[], int] = time.thread_time_ns
    process: Callable[[], int] = time.process_time_ns


HOST_CLOCKS = CpuClocks()


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

    def __init__(self, clocks: CpuClocks = HOST_CLOCKS) -> None:
        self._clocks = clocks
        self._processes: dict[int, _Process] = {}
        self._account_ns: int | None = None
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

    def read(self, account_ns: int | None, now_ns: int | None = None) -> MeterSums:
        """Read all processes now; ``account_ns`` is the job's CPU time, where there is an account of it."""
        began_ns = self._clocks.thread()  # what it costs, not what else ran meanwhile
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        for process in self._processes.values():
            WORK.pause_if_spent()
            self._delay_ns += _delay_since(process)
        if account_ns is not None:
            before_ns, self._account_ns = self._account_ns, account_ns
            self._cpu_ns += max(0, account_ns - (account_ns if before_ns is None else before_ns))
        else:
            for pid, process in self._processes.items():
                WORK.pause_if_spent()
                self._cpu_ns += _cpu_since(pid, process)
        cost_ns = self._clocks.thread() - began_ns
        self._next_ns = now_ns + max(MIN_SPAN_NS, cost_ns * COST_SHARE)
        return MeterSums(self._cpu_ns, self._delay_ns, len(self._processes))

    def close(self) -> None:
        """Close all files."""
        for process in self._processes.values():
            _close(process)
        self._processes.clear()


def _cpu_since(pid: int, process: _Process) -> int:
    now_ns = process_ns(pid)
    if now_ns is None:
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
    meter: UsageMeter
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
    outside_ns: int = 0  # CPU time that it used while it was frozen, or for launches, until that was charged
    yielded_ns: int = 0  # CPU time that it used while it yielded, until then
    launches: bool = False  # while it was held, until then
    slurm_ns: int = 0  # CPU time of Slurm's daemons for it while it ran, until then
    looks_ns: int = 0  # CPU time of the agent meanwhile
    lost_ns: int | None = None  # for how long it waited in its own slices; None: not read since
    daemon_ns: int = 0  # CPU time of Slurm's daemons for it, up to the last reading
    loose_ns: int | None = None  # when a freeze was last seen not to hold it

    def advance(self, now_ns: int, used_ns: int | None = None) -> None:
        """Count the time that has passed, and what it used while it yielded."""
        passed_ns, used_since_ns = max(0, now_ns - self.since_ns), self.since_mark(used_ns)
        if self.held:
            self.outside_ns += used_since_ns
        if self.low:
            self.yielded_ns += used_since_ns
            self.low_ns += passed_ns
            self.left_ns += used_since_ns
        elif not self.held:
            self.ran_ns += passed_ns
        elif used_since_ns > max(LEAST_DEBT_NS, LOOSE_SHARE * passed_ns):
            self.loose_ns = now_ns
        self.since_ns, self.mark_ns = now_ns, used_ns

    def judge(self, used_ns: int, ran_ns: int, now_ns: int) -> None:
        """Note whether it was clearly busy while it ran; time in which it only yielded tells nothing."""
        if ran_ns and used_ns <= STEADY_SHARE * ran_ns:
            self.steady_ns = None
        elif ran_ns and self.steady_ns is None:
            self.steady_ns = now_ns

    def take_outside(self) -> int:
        """Return the CPU time in slices of others that it owes for, since the last call."""
        owed_ns = self.outside_ns + (self.yielded_ns if self.launches else 0)
        self.outside_ns, self.yielded_ns, self.launches = 0, 0, False
        self.slurm_ns = self.looks_ns = 0
        return owed_ns

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

    Parameters
    ----------
    clocks
        Of the agent's own work.

    Attributes
    ----------
    unseen
        Jobs of which not all is known, None for all jobs: they are not read, or they would look idle.
    """

    def __init__(self, clocks: CpuClocks = HOST_CLOCKS) -> None:
        self._clocks = clocks
        self.unseen: frozenset[int] | None = frozenset()
        self._jobs: dict[int, _MeteredJob] = {}

    def track(self, pids_by_job: dict[int, tuple[int, ...]], now_ns: int) -> None:
        """Follow exactly these jobs with these processes."""
        for job in self._jobs.keys() - pids_by_job.keys():
            self._jobs.pop(job).meter.close()
        for job, pids in pids_by_job.items():
            WORK.pause_if_spent()
            if job not in self._jobs:
                self._jobs[job] = _MeteredJob(UsageMeter(self._clocks), since_ns=now_ns)
            self._jobs[job].meter.watch(pids)

    def on_launch(self, job: int, total_ns: int, own_ns: int) -> None:
        """Note what launches cost: Slurm's daemons in all, and the agent since it looked last."""
        known = self._jobs.get(job)
        if known is not None:
            passed_ns, known.daemon_ns = max(0, total_ns - known.daemon_ns), total_ns
            if known.held or known.low:
                known.launches = True
                known.outside_ns += passed_ns + own_ns
            elif known.yields:
                known.slurm_ns += passed_ns
                known.looks_ns += own_ns

    def loose_at(self, now_ns: int) -> frozenset[int]:
        """Jobs that a freeze does not hold, as they used much while they were frozen a while ago."""
        return frozenset(
            job
            for job, known in self._jobs.items()
            if known.loose_ns is not None and now_ns < known.loose_ns + LOOSE_NS
        )

    def charge(self, run: Iterable[int], held: Iterable[int]) -> dict[int, int]:
        """Return what held jobs used of what owners of slices lacked, since the last call, by job.

        What a job uses that yields, as one group, is what owners leave. One that launches steps has processes
        that are in no group yet.
        """
        owners = [self._jobs[job] for job in run if job in self._jobs]
        others = {job: self._jobs[job] for job in held if job in self._jobs}
        if all(owner.lost_ns is None for owner in owners):
            return {}
        lost_ns = sum(owner.lost_ns or 0 for owner in owners)
        used_ns = {job: other.take_outside() for job, other in others.items()}
        part = min(1.0, lost_ns / max(1, sum(used_ns.values())))
        for owner in owners:
            owner.lost_ns = None
        return {job: round(used * part) for job, used in used_ns.items() if used}

    def charge_launches(self, run: Iterable[int]) -> dict[int, int]:
        """Return what launches took since the last call, of jobs that yield and take no turns, by job.

        Jobs that take no turns share a core by their groups' weights. What Slurm computes for a launch is in
        no job's group, so that all lose alike. If the one of two that launches is held for as long as that
        took, it alone has lost it. Where no other job wants the core it goes on. The agent's looks, which
        have other reasons, too, count no more than what they look at.
        """
        owed_ns = {}
        for job in run:
            if (known := self._jobs.get(job)) is not None and known.yields:
                looks_ns = min(known.looks_ns, known.slurm_ns)
                owed_ns[job] = known.slurm_ns + looks_ns + known.outside_ns
                known.take_outside()
        return {job: owed for job, owed in owed_ns.items() if owed}

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
        self, job: int, used_ns: int | None, now_ns: int, begun_ns: int | None = None, cores: int = 1
    ) -> Samples:
        """Read a job that was not frozen; nothing at the first reading, which has nothing to compare with.

        A job that yields and was suspended or resumed when the slice that runs began, at ``begun_ns``, is
        reported up to then: its state differs since. ``cores`` are those that it has here.
        """
        known = self._jobs[job]
        turned = known.yields and begun_ns is not None and known.turned_ns >= begun_ns
        if not turned:
            known.advance(now_ns, used_ns)
        before, known.last = known.last, known.meter.read(used_ns, now_ns)
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
        # Its tasks wait also while it yields, for the owner of that slice.
        waited_ns = low_ns + (now_ns - known.turned_ns if turned and known.low else 0)
        lost_ns = min(delay_ns - max(1, tasks) * waited_ns + left_ns, cores * ran_ns - (cpu_ns - left_ns))
        known.lost_ns = (known.lost_ns or 0) + max(0, lost_ns)
        if not low_ns:
            return Samples(_sample(job, cpu_ns, delay_ns, ran_ns, tasks))
        # A yielding job waits; in its own slices no job precedes it.
        leftover = _sample(job, left_ns, delay_ns, low_ns, tasks, low_ns)
        return Samples(_sample(job, cpu_ns - left_ns, 0, ran_ns, tasks) if ran_ns else None, leftover)

    def is_steady(self, job: int, now_ns: int) -> bool:
        """Whether a job has been clearly busy for seconds."""
        known = self._jobs.get(job)
        return known is not None and known.steady_ns is not None and now_ns >= known.steady_ns + STEADY_NS

    def leak(self, job: int, used_ns: int | None) -> int | None:
        """CPU time (ns) that a held job has used since it was read after its freeze; None for nothing."""
        known = self._jobs.get(job)
        if known is None or not known.held or not known.fresh_hold or known.last is None:
            return None
        before, known.last = known.last, known.meter.read(used_ns)
        leaked_ns = known.last.cpu_ns - before.cpu_ns
        return leaked_ns if leaked_ns > LEAK_NOISE_NS else None

    def close(self) -> None:
        """Close all files."""
        for job in self._jobs.values():
            job.meter.close()
        self._jobs.clear()


class SliceDebts:
    """What jobs owe to those that waited for them, and how they pay. Pure.

    A claim names the jobs that were held in the slice in which they used CPU time. It is paid at the end of a
    slice of the debtor: from then on those are held. So who lost the time gets it, however many take turns.
    """

    def __init__(self) -> None:
        self._owed: dict[int, dict[frozenset[int], int]] = {}

    def owe(self, held: frozenset[int], amounts: Mapping[int, int]) -> None:
        """Note what jobs owe for a slice in which ``held`` were held."""
        for job, amount_ns in amounts.items():
            claims = self._owed.setdefault(job, {})
            claims[held] = min(MOST_DEBT_NS, claims.get(held, 0) + amount_ns)

    def level(self, jobs: frozenset[int]) -> None:
        """Forgive jobs that take turns what each of them owes: then none gains by it."""
        common_ns = min((sum(self._owed.get(job, {}).values()) for job in jobs), default=0)
        for job in jobs if common_ns else ():
            self._forgive(job, common_ns)

    def due(self, run: frozenset[int], length_ns: int) -> tuple[frozenset[int], int] | None:
        """Return which jobs are held instead of others at the end of a slice of ``run``, and for how long."""
        claims = {held for job in run for held in self._owed.get(job, {})}
        sums = [
            (min(self._owed.get(job, {}).get(held, 0) for job in held & run), held)
            for held in claims
            if held & run
        ]
        owed_ns, held = max(sums, key=lambda each: each[0], default=(0, frozenset()))
        if owed_ns < max(LEAST_DEBT_NS, LEAST_DEBT_SHARE * length_ns):
            return None
        return held, min(owed_ns, int(MOST_DEBT_SHARE * length_ns))

    def pay(self, run: frozenset[int], held: frozenset[int], paid_ns: int) -> None:
        """Note that owners of a slice were held for so long."""
        for job in held & run:
            claims = self._owed.get(job, {})
            claims[held] = max(0, claims.get(held, 0) - paid_ns)

    def keep(self, jobs: frozenset[int]) -> None:
        """Forget what others owe, and what is owed for slices of others."""
        kept = {job: claims for job, claims in self._owed.items() if job in jobs}
        self._owed = {
            job: {held: owed_ns for held, owed_ns in claims.items() if held <= jobs and owed_ns}
            for job, claims in kept.items()
        }

    def __bool__(self) -> bool:
        return any(sum(claims.values()) > LEAST_DEBT_NS for claims in self._owed.values())

    def _forgive(self, job: int, amount_ns: int) -> None:
        claims = self._owed[job]
        for held in sorted(claims, key=lambda each: claims[each], reverse=True):
            part_ns = min(amount_ns, claims[held])
            claims[held] -= part_ns
            amount_ns -= part_ns


def _sample(job: int, cpu_ns: int, delay_ns: int, span_ns: int, tasks: int, held_ns: int = 0) -> JobSample:
    return JobSample(
        job=job,
        cpu_us=cpu_ns // 1000,
        delay_us=delay_ns // 1000,
        span_us=span_ns // 1000,
        tasks=tasks,
        held_us=held_ns // 1000,
    )
