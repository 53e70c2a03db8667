"""Yielding without cgroups: SCHED_IDLE for every thread of a job. The last resort.

It counts only among threads of one cpu cgroup, and of one session where ``sched_autogroup_enabled`` is 1 and
that cgroup is the top (``deprioritizer_choice`` looks). What is born while its parent yields, yields; it is
found by the next ``gather`` and released with its job. A process that has threads of another policy than the
usual ones is left alone, as is one from which SCHED_IDLE could not be taken back (``cpu_priority``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

from gangd.freezer.holder import Did, Ledger, StepKey, Write
from gangd.freezer.procfs import ProcStat, read_stat
from gangd.hold.cpu_group import is_daemon
from gangd.hold.cpu_priority import has_cap_nice, is_fair, may_return, policy_of, set_policy, threads
from gangd.hold.deprioritizer import NO_CORES, Alone, Deprioritizer, Pids, Yielded

PASSES = 8
_IDLE = os.SCHED_IDLE
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _IdleTask:
    """A process that we may hold: its ``task`` folder, and the policy that it gets back."""

    pid: int
    start_ticks: int
    folder_fd: int
    slot: int | None
    policy: int


@dataclass(slots=True)
class _IdleJob:
    members: dict[int, _IdleTask] = field(default_factory=dict)
    spared: dict[int, int] = field(default_factory=dict)  # pid: start of a process that is left alone
    low: bool = False
    low_ticks: int = -1  # when it was last low, in the kernel's ticks


class SchedIdle(Deprioritizer):
    """Sets the policy of the threads of jobs.

    Parameters
    ----------
    ledger
        Remembers every process that yields, by pid and start time.
    set_policy
        How a thread gets another policy.
    """

    name = "sched-idle, the policy of each thread"
    weighs = False

    def __init__(self, ledger: Ledger, *, set_policy: Callable[[int, int], None] = set_policy) -> None:
        super().__init__()
        self._ledger = ledger
        self._set_policy = set_policy
        self._free = has_cap_nice()
        self._jobs: dict[int, _IdleJob] = {}

    def gather(
        self,
        jobs: Mapping[int, Pids],
        alone: Alone = nullcontext,  # noqa: ARG002 - as its protocol has it
        cores: Mapping[int, int] = NO_CORES,  # noqa: ARG002
    ) -> bool:
        """See ``Deprioritizer``."""
        new = False
        for number, pids in jobs.items():
            job = self._jobs.setdefault(number, _IdleJob())
            for _ in range(PASSES):
                if not self._find(number, job, pids()):
                    break
                new = True
        for number in [number for number in self._jobs if number not in jobs]:
            self._drop(number)
        return new

    def plan(self, key: StepKey, ours: dict[int, bool], *, holds: bool) -> list[Write] | None:  # noqa: ARG002 - as its protocol has it
        """See ``Deprioritizer``: it is system calls, not writes."""
        return None

    def close(self) -> None:
        """See ``Deprioritizer``."""
        for number in list(self._jobs):
            self._drop(number)

    def _find(self, number: int, job: _IdleJob, pids: tuple[int, ...]) -> bool:
        """Take in the processes of a job; whether one is new. What was born meanwhile is brought in line."""
        present = set(pids)
        with self._lock:
            for pid in [pid for pid in job.members if pid not in present]:
                self._leave(job.members.pop(pid))
            job.spared = {pid: start for pid, start in job.spared.items() if pid in present}
            new = False
            for pid in pids:
                member = job.members.get(pid)
                if member is None and pid not in job.spared:
                    member = self._meet(number, job, pid)
                    new = new or member is not None
                if member is not None:
                    self._align_now(number, member, low=job.low)
        return new

    def _meet(self, number: int, job: _IdleJob, pid: int) -> _IdleTask | None:
        stat = read_stat(pid)
        if stat is None or not stat.alive or is_daemon(pid):
            return None
        policies = {policy_of(tid) for tid in threads(f"/proc/{pid}/task")} - {None}
        ours = self._born_low(job, stat)
        if not all(is_fair(policy) or (policy == _IDLE and ours) for policy in policies):
            job.spared[pid] = stat.start_ticks
            return None
        if not self._free and not may_return(pid):
            job.spared[pid] = stat.start_ticks
            self._troubles[number] = f"SCHED_IDLE could not be taken back from process {pid}: RLIMIT_NICE"
            return None
        try:
            folder_fd = os.open(f"/proc/{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        now = read_stat(pid)
        if now is None or now.start_ticks != stat.start_ticks:
            os.close(folder_fd)
            return None
        usual = os.SCHED_BATCH if os.SCHED_BATCH in policies else os.SCHED_OTHER
        job.members[pid] = _IdleTask(pid, stat.start_ticks, folder_fd, None, usual)
        return job.members[pid]

    def _born_low(self, job: _IdleJob, stat: ProcStat) -> bool:
        """Whether a process that has SCHED_IDLE got it from us, through its parent."""
        parent = job.spared.get(stat.parent)
        return parent is None and (job.low or stat.start_ticks <= job.low_ticks)

    def _turn(self, number: int, *, low: bool) -> Yielded:
        with self._lock:
            job = self._jobs.get(number)
            if job is None:
                return Yielded(Did.GONE)
            if job.low is low:
                return Yielded(Did.NOTHING)
            job.low, job.low_ticks = low, _ticks()
            text = None
            for member in job.members.values():
                text = self._align_now(number, member, low=low) or text
            return Yielded(Did.WROTE) if text is None else Yielded(Did.FAILED, text)

    def _align_now(self, number: int, member: _IdleTask, *, low: bool) -> str | None:
        """Give a process the policy that it should have, as far as the ledger can remember it."""
        if member.slot is None:  # it did not fit in the ledger before
            member.slot = self._ledger.claim_idle(member.pid, member.start_ticks, number)
            if member.slot is None:
                return "the ledger is full: not all processes yield"
        if low:
            self._ledger.hold(member.slot)
        text = self._align(member, low=low)
        if text is None and not low:
            self._ledger.release(member.slot)
        return text

    def _align(self, member: _IdleTask, *, low: bool) -> str | None:
        """Give the threads of a process the policy that they should have; what went wrong, if anything."""
        text = None
        for tid in threads(member.folder_fd):
            try:
                if (policy_of(tid) == _IDLE) is not low:
                    self._set_policy(tid, _IDLE if low else member.policy)
            except ProcessLookupError:
                continue
            except OSError as error:
                text = f"policy of thread {tid} of process {member.pid}: {error.strerror}"
        return text

    def _drop(self, number: int) -> None:
        self._turn(number, low=False)
        with self._lock:
            for member in self._jobs.pop(number).members.values():
                self._leave(member)

    def _leave(self, member: _IdleTask) -> None:
        """Forget a process: it is gone, or belongs to the job no more and gets back what it had."""
        stuck = self._align(member, low=False) is not None
        os.close(member.folder_fd)
        if member.slot is not None and not stuck:  # else it stays the guardian's to release
            self._ledger.drop(member.slot)


def _ticks() -> int:
    """Now, in the unit and from the instant of a process's start time."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)
