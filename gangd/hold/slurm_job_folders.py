"""Yielding through the cpu cgroups that Slurm itself made for its jobs.

cgroup v2: ``.../[<node>_]slurmstepd.scope/job_J`` is the level at which jobs are siblings; a step's or a
task's cgroup is not, and slurmstepd, which lies in the job's too, yields with it. Slurm enables the
controllers of its own folders if those above have them; where it did not, the agent may enable ``cpu`` in
Slurm's scope, and nowhere above: that is systemd's.

cgroup v1 with ``cpu`` and ``cpuacct`` mounted together, where ``jobacct_gather/cgroup`` keeps
``slurm[_<node>]/uid_U/job_J``: jobs are siblings of the same user's only. A user's folder yields when all of
his jobs do; while one does not, the kernel gives the user's weight to the cores of that one, for it shares a
cgroup's weight out by load, and next to nothing to the cores of those that yield.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

from foundation.errors import HostError
from foundation.trust import closing_fd, open_below, open_entry
from gangd.freezer.holder import Did, Ledger, Step, StepKey, Write
from gangd.freezer.tree import is_gone
from gangd.hold.cpu_group import CpuGroup, Turner, enable_cpu
from gangd.hold.cpu_priority import CpuWeightControl
from gangd.hold.deprioritizer import NO_CORES, Alone, Deprioritizer, Pids, Yielded


class JobFolders(Deprioritizer):
    """Slurm's folders of jobs below ``root``.

    Parameters
    ----------
    root
        Mount of the unified hierarchy, or of the v1 hierarchy that has ``cpu`` and ``cpuacct``.
    knob
        ``IDLE2``, ``WEIGHT2``, ``IDLE1`` or ``SHARES1``.
    ledger
        Remembers what yields, for the guardian.
    write
        How control files are written.

    Raises
    ------
    HostError
        ``root`` is no directory.
    """

    weighs = True

    def __init__(
        self,
        root: Path,
        knob: CpuWeightControl,
        ledger: Ledger,
        *,
        write: Callable[[int, bytes, int], int] = os.pwrite,
    ) -> None:
        super().__init__()
        self._nested = not knob.unified
        generation = "cgroup1" if self._nested else "cgroup2"
        self.name = f"{generation}, {knob.file} of Slurm's job folders"
        self.root = root
        self._knob = knob
        self._ledger = ledger
        self._turner = Turner(knob, ledger, write)
        self._wanted: frozenset[int] = frozenset()
        self._folders: dict[str, CpuGroup] = {}
        self._jobs: dict[int, str] = {}
        self._users: dict[str, list[int]] = {}
        self._asked: set[str] = set()
        try:
            self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise HostError(f"cannot open the cpu hierarchy {root}: {error.strerror}") from error

    def gather(
        self,
        jobs: Mapping[int, Pids],
        alone: Alone = nullcontext,
        cores: Mapping[int, int] = NO_CORES,  # noqa: ARG002 - as its protocol has it
    ) -> bool:
        """See ``Deprioritizer``: the processes are there already, and their folders are opened."""
        with alone(), self._lock:
            self._wanted = frozenset(jobs)
            self._reopen()
        return False

    def adopt(self, steps: tuple[Step, ...]) -> None:
        """See ``Deprioritizer``."""
        users: dict[str, list[int]] = {}
        jobs: dict[int, str] = {}
        for step in steps:
            for path in step.paths[:1]:
                folder = path.partition("/step_")[0]
                if step.key.job not in jobs:
                    jobs[step.key.job] = folder
                    users.setdefault(folder.rpartition("/")[0], []).append(step.key.job)
        with self._lock:
            self._jobs, self._users = jobs, users if self._nested else {}
            self._reopen()
            for user in self._users:
                self._follow(user)

    def plan(self, key: StepKey, ours: dict[int, bool], *, holds: bool) -> list[Write] | None:
        """See ``Deprioritizer``. A user's folder (v1) follows all of his jobs: that is more than a list."""
        folder = None if self._nested else self._folders.get(self._jobs.get(key.job, ""))
        return None if folder is None else self._turner.plan(folder, key, ours, holds=holds)

    def close(self) -> None:
        """See ``Deprioritizer``."""
        with self._lock:
            for path in list(self._folders):
                self._close(path)
            os.close(self._root_fd)

    def _reopen(self) -> None:
        """Open the folders of jobs that may have to yield, and let all others go.

        One that cannot be released is kept, and tried again the next time.
        """
        needed = {folder: job for job, folder in self._jobs.items() if job in self._wanted}
        needed |= {user: jobs[0] for user, jobs in self._users.items() if self._wanted.intersection(jobs)}
        for path in list(self._folders):
            gone = self._is_gone(path)
            if gone or (
                path not in needed and self._turner.turn(self._folders[path], low=False).did is not Did.FAILED
            ):
                self._close(path)
        for path, job in needed.items():
            folder = self._folders.get(path) or self._open(path, job)
            if folder is not None and folder.slot is None:  # also one that did not fit in the ledger before
                folder.slot = self._ledger.claim_cgroup(self._knob.kind, path, job)

    def _turn(self, job: int, *, low: bool) -> Yielded:
        with self._lock:
            folder = self._folders.get(self._jobs.get(job, ""))
            if folder is None:
                return Yielded(Did.GONE)
            user = folder.path.rpartition("/")[0]
            # The user's first: no moment in which the job is normal inside of what is low.
            if not low and user in self._folders:
                self._turner.turn(self._folders[user], low=False)
            done = self._turner.turn(folder, low=low)
            if low:
                self._follow(user)
            return done

    def _follow(self, user: str) -> None:
        """Let a user's folder yield while all of his jobs do."""
        folder = self._folders.get(user)
        if folder is not None:
            self._turner.turn(folder, low=all(map(self._is_low, self._users.get(user, ()))))

    def _is_low(self, job: int) -> bool:
        folder = self._folders.get(self._jobs[job])
        return folder is not None and folder.low

    def _open(self, path: str, job: int) -> CpuGroup | None:
        if not self._knob.allows(path):
            self._troubles[job] = f"{path} is no folder of Slurm's"
            return None
        fds: dict[str, int] = {}
        try:
            dir_fd = open_below(self._root_fd, path)
        except OSError:
            return None
        try:
            with closing_fd(dir_fd):
                self._enable(path, dir_fd)
                for file in dict.fromkeys((self._knob.file, self._knob.weight_file)):
                    fds[file] = open_entry(dir_fd, file, os.O_RDWR)
            weight = self._own_weight(fds)
        except (OSError, ValueError) as error:
            for fd in fds.values():
                os.close(fd)
            self._troubles[job] = f"{path} has no {self._knob.file} that can be written: {error}"
            return None
        folder = self._folders[path] = CpuGroup(path=path, fds=fds, weight=weight)
        return folder

    def _own_weight(self, fds: dict[str, int]) -> int:
        """Weight of a folder that was just opened; one that an earlier agent left low gets the usual one."""
        weight = int(os.pread(fds[self._knob.weight_file], 32, 0))
        if int(os.pread(fds[self._knob.file], 32, 0)) == int(self._knob.low) or weight <= self._knob.least:
            weight = self._knob.usual
            for file, data in self._knob.normal(weight):
                self._turner.write(fds[file], data, 0)
        return weight

    def _enable(self, path: str, dir_fd: int) -> None:
        """Enable ``cpu`` for the jobs in Slurm's own scope (v2), once, if it has it and they do not."""
        scope = path.rpartition("/")[0]
        if self._nested or scope in self._asked:
            return
        self._asked.add(scope)
        with contextlib.suppress(FileNotFoundError):
            os.close(open_entry(dir_fd, self._knob.weight_file, os.O_RDONLY))
            return
        with contextlib.suppress(OSError), closing_fd(open_below(self._root_fd, scope)) as scope_fd:
            enable_cpu(scope_fd)

    def _is_gone(self, path: str) -> bool:
        """Whether an open folder was removed: one of the same name may be another (requeue)."""
        try:
            os.pread(self._folders[path].fds[self._knob.weight_file], 1, 0)
        except OSError as error:
            return is_gone(error)
        return False

    def _close(self, path: str) -> None:
        """Forget a folder; if it is low and still there, it stays in the ledger."""
        folder = self._folders[path]
        stuck = self._turner.turn(folder, low=False).did is Did.FAILED
        del self._folders[path]
        folder.close()
        if folder.slot is not None and not stuck:
            self._ledger.drop(folder.slot)
