"""Facts about processes from ``/proc``: identity that survives pid reuse, state, and who is slurmstepd.

Standard library only: the guardian uses this module too. Field numbers are those of proc(5).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import signal
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from foundation.process_stat import PARENT, SESSION, START_TICKS, STATE, THREADS, split_stat

PROC = Path("/proc")
_SUFFIX = re.compile(r"(-[a-z0-9.]+)?")
LAUNCHERS = frozenset({"srun"})
SLURM_DAEMONS = frozenset({"slurmstepd", "slurmd", "slurmctld", "slurmdbd", "slurmrestd", "munged"})
_TERMINAL_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_CPUCLOCK_SCHED = 2
_STOP_BIT = 1 << (signal.SIGSTOP - 1)
WORK_NS, PAUSE_S = 20_000_000, 0.001
"""A thread of real-time priority works so long (ns) without a pause, and pauses so long (s) then."""


class WorkBudget:
    """Bounds for how long the agent works without a pause.

    Loops over steps, processes or cgroups call ``pause_if_spent`` once an item. A pause is a system call that
    blocks: it lets others run, and the kernel's count for RLIMIT_RTTIME begins anew (setrlimit(2)).

    Parameters
    ----------
    clock, sleep
        As ``time.monotonic_ns`` and ``time.sleep``.
    """

    def __init__(
        self, clock: Callable[[], int] = time.monotonic_ns, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._since_ns = clock()

    def is_spent(self) -> bool:
        """Whether a pause is due."""
        return self._clock() - self._since_ns >= WORK_NS

    def pause_if_spent(self) -> None:
        """Pause if ``WORK_NS`` have passed since the last pause."""
        if self.is_spent():
            self.pause()

    def pause(self) -> None:
        """Pause now."""
        self._sleep(PAUSE_S)
        self.renew()

    def renew(self) -> None:
        """Note that the thread has just blocked, in a call of its own."""
        self._since_ns = self._clock()


WORK = WorkBudget()
"""Of the agent's loop; its switch thread never pauses."""


@dataclass(frozen=True, slots=True)
class ProcStat:
    """One process as ``/proc/<pid>/stat`` shows it; pid and ``start_ticks`` (since boot) identify it."""

    pid: int
    comm: str
    state: str  # R S D T t Z X I
    parent: int
    session: int
    start_ticks: int
    threads: int = 1

    @property
    def identity(self) -> tuple[int, int]:
        """Pid and start: never the same for two processes of one boot."""
        return self.pid, self.start_ticks

    @property
    def alive(self) -> bool:
        """Whether it can still run. A process whose first thread has ended shows Z while others run on."""
        return self.state not in "ZXx" or (self.state == "Z" and self.threads > 1)


SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EAGAIN})
SPARE_FILES = 64
"""So many descriptors are left for looks, which need some for a moment."""


def is_shortage(error: BaseException) -> bool:
    """Whether an error means that descriptors or memory run out: what was looked for may be there."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORTAGES)


def has_spare_files(fd: int) -> bool:
    """Whether a descriptor that was just opened may be kept, by its number."""
    return fd < resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES


def read_stat(pid: int, proc: Path = PROC) -> ProcStat | None:
    """Read one process; None if it is gone."""
    raw = _read(f"{proc}/{pid}/stat")
    if raw is None:
        return None
    try:
        name, fields = split_stat(raw)
    except ValueError:
        return None
    parent, session, threads, start_ticks = (
        int(fields[at]) for at in (PARENT, SESSION, THREADS, START_TICKS)
    )
    comm, state = name.decode("utf-8", "surrogateescape"), fields[STATE].decode("ascii")
    return ProcStat(pid, comm, state, parent, session, start_ticks, threads)


def is_stopped(found: ProcStat, proc: Path = PROC) -> bool:
    """Whether a living process is stopped, or cannot return to its program before it has stopped.

    The latter sleeps in the kernel (D), as the parent of a vfork does until its child, which may be stopped,
    has another program: SIGSTOP waits for it. A stop (T) is of all threads, but a tracer stops each by itself
    (t), and lets each go.
    """
    if found.threads > 1 and found.state in "TtDZ":
        with contextlib.suppress(OSError), os.scandir(f"{proc}/{found.pid}/task") as entries:
            folder = proc / str(found.pid) / "task"
            threads = [stat for one in entries if (stat := read_stat(int(one.name), folder)) is not None]
            run_on = [one.pid for one in threads if one.state in "RS"]
            if any(one.state == "T" for one in threads):
                return not any(_is_traced(tid, folder) for tid in run_on)
            return not run_on and any(one.state == "t" for one in threads)
    if found.state in "Tt":
        return True
    return found.state == "D" and bool(pending_signals(found.pid, proc) & _STOP_BIT)


def _is_traced(pid: int, proc: Path) -> bool:
    status = _read(f"{proc}/{pid}/status") or b""
    return b"\nTracerPid:\t" in status and b"\nTracerPid:\t0\n" not in status


def scan(proc: Path = PROC) -> Iterator[ProcStat]:
    """Every process of the host, in ascending order of pid; with pauses (``WorkBudget``)."""
    with os.scandir(proc) as entries:
        pids = sorted(int(entry.name) for entry in entries if entry.name.isdigit())
    for pid in pids:
        WORK.pause_if_spent()
        found = read_stat(pid, proc)
        if found is not None:
            yield found


def pending_signals(pid: int, proc: Path = PROC) -> int:
    """Bit mask of the signals that wait for a process and that it will take; bit n-1 is signal n.

    Those are ``SigPnd`` and ``ShdPnd`` of its main thread less ``SigBlk`` and ``SigIgn`` (``proc(5)``): what
    is blocked or ignored ends and stops nothing. SIGKILL and SIGSTOP can be neither.
    """
    waiting, masked = _signals(_read(f"{proc}/{pid}/status") or b"")
    return waiting & ~masked


def signals_to_continue(pid: int, proc: Path = PROC) -> tuple[signal.Signals, ...]:
    """Return what ends the caller's own SIGSTOP of a process and no stop of another's.

    SIGCONT removes the stop signals that wait (signal(7)). A SIGSTOP that waits for a process that is stopped
    already is another's: nothing is to be sent. Other stop signals may be caught: they follow SIGCONT anew.
    """
    raw = _read(f"{proc}/{pid}/status") or b""
    waiting, _ = _signals(raw)
    if b"\nState:\tT" in raw and waiting & _STOP_BIT:
        return ()
    return (signal.SIGCONT, *(number for number in _TERMINAL_STOPS if waiting & 1 << number - 1))


def _signals(raw: bytes) -> tuple[int, int]:
    """Return the signals that wait, and those that are blocked or ignored."""
    masks: dict[bytes, int] = {}
    start = raw.find(b"\nSigPnd:")
    for line in raw[start + 1 : start + 256].split(b"\n")[:4] if start >= 0 else ():
        name, _, value = line.partition(b":")
        masks[name] = int(value, 16)
    waiting, blocked = masks.get(b"SigPnd", 0) | masks.get(b"ShdPnd", 0), masks.get(b"SigBlk", 0)
    return waiting, blocked | masks.get(b"SigIgn", 0)


def environment(pid: int, names: frozenset[bytes], proc: Path = PROC) -> dict[bytes, bytes]:
    """Read the initial environment of a process, only ``names``; empty if it is gone or not ours to read."""
    raw = _read(f"{proc}/{pid}/environ")
    found: dict[bytes, bytes] = {}
    for item in (raw or b"").split(b"\0"):
        name, _, value = item.partition(b"=")
        if name in names:
            found[name] = value
    return found


def command_line(pid: int, proc: Path = PROC) -> str:
    """Command line of a process with spaces between the words; empty if it is gone."""
    raw = _read(f"{proc}/{pid}/cmdline") or b""
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()


def owner(pid: int, proc: Path = PROC) -> int | None:
    """Effective user of a process; None if it is gone."""
    try:
        return os.stat(f"{proc}/{pid}").st_uid  # noqa: PTH116  (asked for every process of the host)
    except OSError:
        return None


def birthplace(stat: ProcStat, proc: Path = PROC) -> tuple[str, str]:
    """Return what a process has from its birth on and its user cannot change: its cgroups, and its login.

    The latter are its user and session of the kernel's audit (proc(5)), which a login sets; empty without it.
    A thread that has ended is shown in no cgroup (v1): another one tells.
    """
    task = f"{proc}/{stat.pid}"
    if stat.state == "Z":
        with contextlib.suppress(OSError), os.scandir(f"{task}/task") as threads:
            task = max(threads, key=lambda thread: int(thread.name)).path
    cgroups, user, session = (
        (_read(f"{task}/{name}") or b"").decode("utf-8", "replace")
        for name in ("cgroup", "loginuid", "sessionid")
    )
    return cgroups, f"{user} {session}".strip()


def process_ns(pid: int) -> int | None:
    """CPU time of a process, all threads (``clock_getcpuclockid(3)``); None if it has ended."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return None


def is_launcher(pid: int, proc: Path = PROC) -> bool:
    """Whether a process launches the tasks of a step (``srun``), by its name."""
    raw = _read(f"{proc}/{pid}/comm")
    return raw is not None and raw.rstrip(b"\n").decode("ascii", "replace") in LAUNCHERS


def is_slurmstepd(pid: int, proc: Path = PROC) -> bool:
    """Whether a process is slurmstepd (or a child of it that has not started the task yet).

    Its name alone does not prove it, or a user could escape by taking it: the executable must be called
    so (Debian: ``slurmstepd-wlm``), belong to root or to ourselves, and, where we are root, run as root and
    not by a set-user-ID bit, to which a user may have made a hard link of that name.
    To root nothing is unreadable but what has no executable any more: a process whose first thread has
    ended, while others run on, is a user's. Raises OSError where that cannot be found out (``is_shortage``).
    """
    return is_slurm_daemon(pid, proc, frozenset({"slurmstepd"}))


def is_slurm_daemon(pid: int, proc: Path = PROC, names: frozenset[str] = SLURM_DAEMONS) -> bool:
    """Whether a process is one of Slurm's daemons; proved, and raises, as in ``is_slurmstepd``."""
    raw = _read(f"{proc}/{pid}/comm", strict=True)
    name = (raw or b"").rstrip(b"\n").decode("ascii", "replace")
    if name not in names:
        return False
    exe = Path(f"{proc}/{pid}/exe")
    try:
        target = Path(str(exe.readlink()).removesuffix(" (deleted)")).name
        found = exe.stat()
    except OSError:
        return os.geteuid() != 0  # unreadable: as a plain user, believe the name
    if not target.startswith(name) or not _SUFFIX.fullmatch(target, len(name)):
        return False
    own = os.geteuid()
    if not stat.S_ISREG(found.st_mode) or found.st_mode & stat.S_ISUID:
        return False
    return found.st_uid in (0, own) and (own != 0 or owner(pid, proc) == 0)


def boot_id(proc: Path = PROC) -> str:
    """Random name of this boot of the host."""
    return (_read(f"{proc}/sys/kernel/random/boot_id") or b"unknown").decode().strip()


def _read(path: str, *, strict: bool = False) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if strict and is_shortage(error):
            raise
        return None
    try:
        raw = os.read(fd, 1 << 16)
        while len(raw) >= 1 << 16:
            more = os.read(fd, 1 << 20)
            if not more:
                break
            raw += more
    except OSError:  # ESRCH: it died between open and read; EACCES: not ours
        return None
    else:
        return raw
    finally:
        os.close(fd)
