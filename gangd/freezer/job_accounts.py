"""What jobs have used, by the accounts that Slurm keeps in cgroups, and what its daemons used for them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gangd.freezer.holder import CpuTimeFile
from gangd.freezer.procfs import process_ns


@dataclass(slots=True)
class _Account:
    """A job's file, open or not yet. ``ended``: its cgroup may be another by now; ``daemons``: by pid."""

    path: str
    fd: int | None = None
    ended: bool = False
    daemons: dict[int, int] = field(default_factory=dict)
    daemons_ns: int = 0

    def close(self) -> None:
        """Close the file."""
        self.ended = False
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class JobAccounts:
    """The accounts of the jobs of one node.

    Parameters
    ----------
    root
        Mount of v1's ``cpuacct``, or of the unified hierarchy; None where there is none.
    in_lines
        Whether it is the unified one.
    """

    def __init__(self, root: Path | None, *, in_lines: bool = False) -> None:
        self._root = root
        self._in_lines = in_lines
        self._jobs: dict[int, _Account] = {}

    def follow(self, paths: Mapping[int, str], pause: Callable[[], object]) -> None:
        """Keep the accounts of exactly these jobs, in these folders below the root."""
        for job in [job for job in self._jobs if job not in paths]:
            self._jobs.pop(job).close()
        for job, path in paths.items():
            pause()
            account = self._jobs.setdefault(job, _Account(path))
            if account.ended or account.path != path:
                account.close()
            account.path = path
            self._open(account)

    def end(self, job: int) -> None:
        """Note that the account of a job may be another: the next ``follow`` opens it anew."""
        if job in self._jobs:
            self._jobs[job].ended = True

    def account(self, job: int) -> CpuTimeFile | None:
        """See ``Holder``."""
        account = self._jobs.get(job)
        return None if account is None or account.fd is None else CpuTimeFile(account.fd, self._in_lines)

    def cpu_ns(self, job: int) -> int | None:
        """See ``Holder``."""
        account = self._jobs.get(job)
        fd = None if account is None else self._open(account)
        if account is None or fd is None:
            return None
        try:
            raw = os.pread(fd, 4096, 0)
            if not self._in_lines:
                return int(raw)
            return 1000 * int(raw.split(b"usage_usec ", 1)[1].split(None, 1)[0])
        except (OSError, IndexError, ValueError):
            account.ended = True  # closed by the next ``follow``: a plan may name it
            return None

    def daemon_ns(self, job: int, pids: Iterable[int]) -> int:
        """Return what daemons have used for a job so far: those that run now, and those that have ended."""
        account = self._jobs.get(job)
        if account is None:
            return 0
        before, account.daemons, now = account.daemons, {}, set(pids)
        for pid in now | before.keys():  # what has ended tells its time until its parent takes note
            used_ns = process_ns(pid)
            if used_ns is not None:
                account.daemons_ns += max(0, used_ns - before.get(pid, 0))
                if pid in now:
                    account.daemons[pid] = used_ns
        return account.daemons_ns

    def add(self, job: int, used_ns: int) -> None:
        """Count for a job, with what daemons used for it, what its account does not have."""
        self._jobs.setdefault(job, _Account("")).daemons_ns += used_ns

    def close(self) -> None:
        """Close all files."""
        self.follow({}, lambda: None)

    def _open(self, account: _Account) -> int | None:
        """Open an account if it is there: v1 makes it late."""
        if account.fd is None and self._root is not None:
            name = "cpu.stat" if self._in_lines else "cpuacct.usage"
            with contextlib.suppress(OSError):
                account.fd = os.open(self._root / account.path / name, os.O_RDONLY | os.O_CLOEXEC)
        return account.fd
