"""Yielding through cpu cgroups of the agent's own, one a job, where Slurm has no cgroups of jobs.

That is a v1 ``cpu`` hierarchy that Slurm does not use, or cgroup v2 where Slurm keeps jobs in none.

A group lies at the top of the hierarchy, next to the groups of all other jobs, for only siblings are weighed
against each other. The processes of the job's steps are moved into it, slurmstepd never is; what they fork is
born there. A job that ends leaves an empty group, which is removed; one that is no longer scheduled goes
back to where it came from. With v2 a process has one cgroup for all controllers: one that is moved leaves
the limits of slurmd's service.

A group's weight counts on all of its cores together, so it gets as many times the usual one as its threads
can use cores of those that Slurm has allocated to the job: each thread then weighs what it weighed before.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import HostError
from foundation.trust import closing_fd, open_below, open_entry
from gangd.freezer.holder import Did, Ledger, StepKey, Write
from gangd.freezer.tree import is_gone, job_of_own, own_group, read_anew, subdirectories
from gangd.hold.cpu_group import CpuGroup, Turner, born_at, cpu_path, enable_cpu, is_daemon, width
from gangd.hold.cpu_priority import CpuWeightControl
from gangd.hold.deprioritizer import NO_CORES, Alone, Deprioritizer, Pids, Yielded

PASSES = 8
"""How often the processes of a job are listed in one go: a pass finds only what was forked meanwhile."""


@dataclass(slots=True, kw_only=True)
class _Group(CpuGroup):
    """An open group of a job. ``origin``: where its processes came from; ``cores``: those it has of Slurm.

    ``tasks_fd`` moves single threads; None with v2, which moves whole processes.
    """

    job: int
    procs_fd: int
    tasks_fd: int | None
    origin: str | None = None
    cores: int = 1

    def close(self) -> None:
        CpuGroup.close(self)
        os.close(self.procs_fd)
        if self.tasks_fd is not None:
            os.close(self.tasks_fd)


class OwnGroups(Deprioritizer):
    """Cpu cgroups ``gangd_<node>_job_<J>`` below ``root``.

    Parameters
    ----------
    root
        Mount of the v1 ``cpu`` hierarchy, or of the unified one.
    knob
        ``IDLE1`` or ``SHARES1``; ``IDLE2`` or ``WEIGHT2``.
    node
        Slurm's name of this node.
    ledger
        Remembers what yields, for the guardian.
    write
        How control files are written.

    Raises
    ------
    HostError
        ``root`` is no directory, or groups that an earlier agent left cannot be written.
    """

    weighs = True

    def __init__(
        self,
        root: Path,
        knob: CpuWeightControl,
        node: str,
        ledger: Ledger,
        *,
        write: Callable[[int, bytes, int], int] = os.pwrite,
    ) -> None:
        super().__init__()
        self.name = f"cgroup{2 if knob.unified else 1}, {knob.file} of own groups"
        self.root = root
        self._knob = knob
        self._node = node
        self._ledger = ledger
        self._turner = Turner(knob, ledger, write)
        self._groups: dict[int, _Group] = {}
        self._leaving: dict[int, None] = {}
        try:
            self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._restore_left()
        except OSError as error:
            raise HostError(f"cannot use the cpu hierarchy {root}: {error.strerror}") from error

    def gather(
        self, jobs: Mapping[int, Pids], alone: Alone = nullcontext, cores: Mapping[int, int] = NO_CORES
    ) -> bool:
        """See ``Deprioritizer``."""
        new = False
        for job, pids in jobs.items():
            group = self._groups.get(job)
            if group is None:
                group = self._make(job)
                if group is None:
                    continue
            if group.slot is None:  # it did not fit in the ledger before
                group.slot = self._claim(job)
            filled = self._fill(group, pids, alone)
            new = new or filled
            if self._groups.get(job) is group and (filled or group.cores != cores.get(job, 1)):
                group.cores = cores.get(job, 1)
                self._weigh(group, pids(), alone)
        for job in [job for job in self._groups if job not in jobs]:
            self._dissolve(job, alone)
        for job in list(self._leaving):
            self._remove(job)
        return new

    def plan(self, key: StepKey, ours: dict[int, bool], *, holds: bool) -> list[Write] | None:
        """See ``Deprioritizer``."""
        group = self._groups.get(key.job)
        return None if group is None else self._turner.plan(group, key, ours, holds=holds)

    def close(self) -> None:
        """See ``Deprioritizer``."""
        for job in list(self._groups):
            self._dissolve(job, nullcontext)
        for job in list(self._leaving):
            self._remove(job)
        os.close(self._root_fd)

    def _restore_left(self) -> None:
        """Give groups that an earlier agent left their weight back, and remove those that are empty."""
        for name in subdirectories(self._root_fd):
            job = job_of_own(name, self._node)
            if job is not None:
                self._knob.restore(self.root, name)
                self._leaving[job] = None
                self._remove(job)
        self._leaving.clear()

    def _make(self, job: int) -> _Group | None:
        """Make and open the group of a job, or open the one that an earlier agent made."""
        name = own_group(self._node, job)
        opened: list[int] = []
        tasks_fd = None
        try:
            if self._knob.unified:  # each time: a service manager may have disabled it
                with contextlib.suppress(FileNotFoundError):  # not to be had: the group then lacks its file
                    enable_cpu(self._root_fd)
            self._make_folder(name)
            with closing_fd(open_below(self._root_fd, name)) as dir_fd:
                files = dict.fromkeys((self._knob.file, self._knob.weight_file))
                fds = {}
                for file in files:
                    fds[file] = open_entry(dir_fd, file, os.O_RDWR)
                    opened.append(fds[file])
                procs_fd = open_entry(dir_fd, "cgroup.procs", os.O_RDWR)
                opened.append(procs_fd)
                if not self._knob.unified:
                    tasks_fd = open_entry(dir_fd, "tasks", os.O_RDWR)
        except OSError as error:
            for fd in opened:
                os.close(fd)
            self._troubles[job] = f"cannot make the cpu cgroup {self.root / name}: {error.strerror}"
            return None
        group = _Group(
            path=name,
            fds=fds,
            weight=self._knob.usual,
            slot=self._claim(job),
            job=job,
            procs_fd=procs_fd,
            tasks_fd=tasks_fd,
        )
        self._groups[job] = group
        self._leaving.pop(job, None)
        return group

    def _make_folder(self, name: str) -> None:
        with contextlib.suppress(FileExistsError):
            try:
                os.mkdir(name, 0o755, dir_fd=self._root_fd)
            except PermissionError:  # the kernel has the top read-only for its owner (CAP_DAC_OVERRIDE)
                os.fchmod(self._root_fd, 0o755)
                os.mkdir(name, 0o755, dir_fd=self._root_fd)

    def _claim(self, job: int) -> int | None:
        return self._ledger.claim_cgroup(self._knob.kind, own_group(self._node, job), job)

    def _fill(self, group: _Group, pids: Pids, alone: Alone) -> bool:
        """Move the processes of a job that are not in its group, until none is left; whether any was."""
        stuck: set[int] = set()
        moved = False
        for _ in range(PASSES):
            wanted = pids()
            try:
                os.pread(group.fds[self._knob.weight_file], 1, 0)
                missing = set(wanted).difference(_numbers(group.procs_fd), stuck)
            except OSError:  # another process removed the group, or disabled its controller (v2)
                self._forget(group, alone)
                return True
            if not missing:
                break
            for pid in missing:
                if is_daemon(pid) or not self._move(group, pid):
                    stuck.add(pid)
                else:
                    moved = True
        return moved

    def _move(self, group: _Group, pid: int) -> bool:
        """Move one process, with all its threads; on v1 one by one if any has real-time priority."""
        if group.origin is None:
            path = cpu_path(pid, unified=self._knob.unified)
            if path is not None and job_of_own(path.removeprefix("/"), None) is None:
                group.origin = path
        try:
            os.pwrite(group.procs_fd, b"%d" % pid, 0)
        except OSError as error:
            if is_gone(error):
                return False
            if error.errno != errno.EINVAL:
                self._troubles[group.job] = f"process {pid} cannot be moved: {error.strerror}"
                return False
            self._troubles[group.job] = f"process {pid} has threads of real-time priority: they do not yield"
            return group.tasks_fd is not None and self._move_threads(group.tasks_fd, pid)
        return True

    def _move_threads(self, tasks_fd: int, pid: int) -> bool:
        moved = False
        for tid in subdirectories(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                moved = os.pwrite(tasks_fd, tid.encode(), 0) > 0 or moved
        return moved

    def _weigh(self, group: _Group, pids: tuple[int, ...], alone: Alone) -> None:
        weight = min(self._knob.most, self._knob.usual * width(pids, group.cores))
        if weight == group.weight:
            return
        with alone(), self._lock:
            group.weight = weight
            if group.low:
                return  # it is written with the release
            try:
                self._turner.write(group.fds[self._knob.weight_file], b"%d" % weight, 0)
            except OSError as error:
                if not is_gone(error):
                    why = f"the weight of its group cannot be set: {error.strerror}"
                    self._troubles[group.job] = f"{why}; it may get less than its part until it is held"

    def _turn(self, job: int, *, low: bool) -> Yielded:
        with self._lock:
            group = self._groups.get(job)
            if group is None:
                return Yielded(Did.GONE)
            return self._turner.turn(group, low=low)

    def _dissolve(self, job: int, alone: Alone) -> None:
        """Give a job's processes back to where they came from, and forget its group.

        One that can neither be released nor emptied is kept, and tried again by the next ``gather``.
        """
        group = self._groups[job]
        with alone():
            stuck = self._turn(job, low=False).did is Did.FAILED
        for _ in range(PASSES):
            left = _numbers_or_none(group.procs_fd)
            if not left:
                break
            home = group.origin or born_at(left, unified=self._knob.unified) or "/"
            if not self._send(home, left):
                break
        if stuck and _numbers_or_none(group.procs_fd):
            return
        self._forget(group, alone)
        self._leaving[job] = None
        self._remove(job)

    def _send(self, home: str, pids: list[int]) -> bool:
        """Move processes into the cgroup ``home`` (or the top, if that is gone); whether any was moved."""
        for path in dict.fromkeys((home, "/")):
            moved = False
            with contextlib.suppress(OSError), closing_fd(self._open_procs(path)) as fd:
                for pid in pids:
                    with contextlib.suppress(OSError):
                        moved = os.pwrite(fd, b"%d" % pid, 0) > 0 or moved
            if moved:
                return True
        return False

    def _open_procs(self, path: str) -> int:
        """Open ``cgroup.procs`` of a path of ``/proc``; one outside of the mount (``..``) counts as gone."""
        parts = [part for part in path.split("/") if part]
        if ".." in parts:
            raise FileNotFoundError(errno.ENOENT, "outside of the mount", path)
        with closing_fd(
            open_below(self._root_fd, "/".join(parts)) if parts else os.dup(self._root_fd)
        ) as dir_fd:
            return open_entry(dir_fd, "cgroup.procs", os.O_WRONLY)

    def _forget(self, group: _Group, alone: Alone) -> None:
        with alone(), self._lock:
            del self._groups[group.job]
            group.close()
            if group.slot is not None:
                self._ledger.drop(group.slot)

    def _remove(self, job: int) -> None:
        try:
            os.rmdir(own_group(self._node, job), dir_fd=self._root_fd)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return
        self._leaving.pop(job, None)


def _numbers(fd: int) -> list[int]:
    return [int(word) for word in read_anew(fd).split()]


def _numbers_or_none(fd: int) -> list[int] | None:
    try:
        return _numbers(fd)
    except OSError:
        return None
