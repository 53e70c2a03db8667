"""What the agent asks of Linux, and the socket on which slurmd's prolog rings.

What the agent asks of Linux itself: notices of files that change, to be on time, a timer.

*Notices* of Slurm's cgroups: steps that come and go, and others that write a step's control file. Two
descriptors with different readers. ``FolderWatch`` wakes the loop. ``FileWatch`` wakes nothing: the hold
controller reads it under its lock, before it writes and again after, so that it always knows whose event is
whose, and never thaws what another process has frozen on top of us.

*On time* on a host whose cores are all busy: priority, memory that stays, a collector that rests. All threads
of the agent get SCHED_FIFO, the switch thread the highest: they share one interpreter lock, and a waiting
switch thread must not depend on an ordinary thread that a job has pushed off its core. The agent uses well
under 1% of a core, and never works for long without a pause (``gangd.freezer.procfs.WorkBudget``). Should it
ever run away, RLIMIT_RTTIME sends SIGXCPU: it gives up its priority (``demote``) and holds nothing for 5 s.

The few calls that Python 3.11 has no name for (timerfd, inotify, mlockall) go through ctypes.

The agent's bell: slurmd's prolog and epilog ring it, and the agent looks at once.

A datagram socket in the agent's private folder. Who rings must be root, or the agent's own user: the kernel
says who he is (``SO_PASSCRED``, unix(7)). All that follows from it is a look, and a question to Slurm;
nothing is believed of the job. Without a bell the agent looks as often as ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from foundation.errors import HostError
from gangd.freezer.holder import StepKey
from gangd.freezer.procfs import WORK

_RING = re.compile(rb"(begin|end) ([1-9][0-9]{0,9})\n?")
_LONGEST = 32
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of struct ucred
MOST_AT_ONCE = 256
"""Rings that are taken in one turn of the loop; what is beyond waits for the next."""


@dataclass(frozen=True, slots=True)
class Rings:
    """What was rung: jobs that begin or end here, and how many rings were of no use."""

    begun: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()
    refused: int = 0


def bell_name(node: str) -> str:
    """Return the name of a node's socket in the agent's folder."""
    return f"bell-{node}"


@dataclass(slots=True)
class Bell:
    """A socket on which rings come in; ``fd`` goes into the loop's poll set."""

    _socket: socket.socket
    _folder_fd: int
    _name: str
    _users: frozenset[int] = field(default_factory=lambda: frozenset((0, os.geteuid())))

    @classmethod
    def hang(cls, folder_fd: int, name: str) -> Bell:
        """Make the socket in a folder to which no other user may write; raises OSError where it cannot be."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder_fd)
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            one.bind(f"/proc/self/fd/{folder_fd}/{name}")  # however long the folder's path is
            os.chmod(name, 0o600, dir_fd=folder_fd)
        except BaseException:
            one.close()
            raise
        return cls(one, os.dup(folder_fd), name)

    @property
    def fd(self) -> int:
        """Descriptor that is readable when a datagram has arrived."""
        return self._socket.fileno()

    def take(self) -> Rings:
        """Take in what was rung."""
        jobs: dict[bytes, set[int]] = {b"begin": set(), b"end": set()}
        refused = 0
        for _ in range(MOST_AT_ONCE):
            try:
                said, about, flags, _ = self._socket.recvmsg(_LONGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError:  # none waits
                break
            ring = _RING.fullmatch(said)
            if ring is None or flags & socket.MSG_TRUNC or _uid(about) not in self._users:
                refused += 1
            elif int(ring[2]) < 1 << 32:
                jobs[ring[1]].add(int(ring[2]))
        return Rings(frozenset(jobs[b"begin"]), frozenset(jobs[b"end"]), refused)

    def close(self) -> None:
        """Take it down."""
        with suppress(OSError):
            os.unlink(self._name, dir_fd=self._folder_fd)
        self._socket.close()
        os.close(self._folder_fd)


def _uid(about: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in about:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _CREDENTIALS.size:
            return int(_CREDENTIALS.unpack_from(data)[1])
    return None


LOOP_PRIORITY = 10
SWITCH_PRIORITY = 12
_INTERPRETER_TURN_S = 0.0005
_STACK_BYTES = 512 * 1024
_RUNAWAY_US, _DEADLY_US = 300_000, 2_000_000

TFD_TIMER_ABSTIME = 1
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
IN_MODIFY, IN_CREATE, IN_DELETE, IN_DELETE_SELF = 0x2, 0x100, 0x200, 0x400
IN_Q_OVERFLOW, IN_IGNORED = 0x4000, 0x8000
_IN_ONLYDIR = 0x01000000
_EVENT = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Notice:
    """One inotify event: the watch, its mask, and the name inside a watched folder."""

    watch: int
    mask: int
    name: str


def parse_notices(raw: bytes) -> Iterator[Notice]:
    """Events as they were read from a descriptor."""
    at = 0
    while at < len(raw):
        watch, mask, _, length = _EVENT.unpack_from(raw, at)
        at += _EVENT.size
        name = raw[at : at + length].rstrip(b"\0").decode("utf-8", "replace")
        at += length
        yield Notice(watch, mask, name)


class Inotify:
    """Changes of folders and files as a descriptor (``inotify``)."""

    def __init__(self) -> None:
        try:
            self.fd = _check(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            raise HostError(
                f"the kernel gives no notices of cgroups (inotify): {error.strerror}; raise "
                "fs.inotify.max_user_instances or the limit of open files"
            ) from error

    def add_folder(self, path: str) -> int | None:
        """Watch a folder for entries that come and go; None if it is gone or watches are used up."""
        return self._add(path, IN_CREATE | IN_DELETE | IN_DELETE_SELF | _IN_ONLYDIR)

    def add_file(self, path: str) -> int | None:
        """Watch a file for writes; None as above."""
        return self._add(path, IN_MODIFY)

    def remove(self, watch: int) -> None:
        """End a watch; one that ended by itself is no error."""
        _libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[Notice]:
        """Every event that waits now."""
        while True:
            try:
                raw = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            yield from parse_notices(raw)

    def close(self) -> None:
        """Give the descriptor and all watches back."""
        os.close(self.fd)

    def _add(self, path: str, mask: int) -> int | None:
        watch = int(_libc.inotify_add_watch(self.fd, path.encode(), mask))
        return None if watch < 0 else watch


class FolderWatch(Inotify):
    """Folders in which entries may come and go; ``fd`` goes into the loop's poll set.

    Attributes
    ----------
    complete
        Whether inotify could watch all folders that exist.
    """

    def __init__(self) -> None:
        super().__init__()
        self.complete = False
        self._folders: dict[str, int] = {}
        self._paths: dict[int, str] = {}

    def set_folders(self, folders: Iterable[str]) -> bool:
        """Watch exactly these folders (absolute); returns whether one is new, and may have changed before."""
        wanted = set(folders)
        for path in [path for path in self._folders if path not in wanted]:
            watch = self._folders.pop(path)
            self._paths.pop(watch, None)
            self.remove(watch)
        new, self.complete = False, True
        for path in wanted - self._folders.keys():
            WORK.pause_if_spent()
            added = self.add_folder(path)
            if added is not None:
                self._folders[path], self._paths[added] = added, path
                new = True
            elif Path(path).exists():
                self.complete = False
        return new

    def changed(self) -> bool:
        """Whether anything came or went since the last call."""
        changed = False
        for notice in self.read():
            if notice.mask & IN_IGNORED:
                path = self._paths.pop(notice.watch, None)
                if path is not None:  # else we ended the watch ourselves
                    del self._folders[path]
                    changed = True
            else:
                changed = changed or bool(notice.mask & IN_Q_OVERFLOW) or bool(notice.name)
        return changed


class FileWatch(Inotify):
    """Control files of steps, and who is written."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, int] = {}
        self._paths: dict[int, tuple[str, StepKey]] = {}

    def set_files(self, files: dict[str, StepKey]) -> bool:
        """Watch exactly these files (absolute); returns whether inotify could watch all that exist."""
        for path in [path for path in self._files if path not in files]:
            ended = self._files.pop(path)
            self._paths.pop(ended, None)
            self.remove(ended)
        complete = True
        for path, key in files.items():
            if path not in self._files:
                watch = self.add_file(path)
                if watch is None:  # it may be gone with its step
                    complete = complete and not Path(path).exists()
                    continue
                self._files[path], self._paths[watch] = watch, (path, key)
        return complete

    def written(self) -> set[StepKey]:
        """Return the steps whose control files were written since the last call, by whomever."""
        return self._judge(self.read())

    def take(self, raw: bytes) -> None:
        """Take in events that native code has read."""
        self._judge(parse_notices(raw))

    def _judge(self, notices: Iterable[Notice]) -> set[StepKey]:
        keys: set[StepKey] = set()
        for notice in notices:
            if notice.mask & IN_IGNORED:
                path, _ = self._paths.pop(notice.watch, (None, None))
                self._files.pop(path or "", None)
            elif notice.watch in self._paths:
                keys.add(self._paths[notice.watch][1])
        return keys


def prepare_process(*, wanted: bool = True) -> dict[str, bool]:
    """Set up the calling process before it makes threads; returns for the log what the host granted of it."""
    sys.setswitchinterval(_INTERPRETER_TURN_S)
    threading.stack_size(_STACK_BYTES)
    fifo = wanted and set_fifo(LOOP_PRIORITY)
    locked = spared = False
    if fifo:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)  # until a handler is installed
        limit_real_time()
    if wanted:
        with contextlib.suppress(OSError):
            lock_memory()
            locked = True
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("-900")
            spared = True
    return {"sched_fifo": fifo, "memory_locked": locked, "oom_spared": spared}


def limit_real_time() -> None:
    """Have SIGXCPU sent to this process when a thread of real-time priority does not pause, later SIGKILL.

    With each signal the kernel raises the soft limit by a second: call this again after one.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    deadly = _DEADLY_US if hard == resource.RLIM_INFINITY else min(hard, _DEADLY_US)
    resource.setrlimit(resource.RLIMIT_RTTIME, (min(_RUNAWAY_US, deadly), deadly))


def demote() -> dict[int, tuple[int, int]]:
    """Give all threads of this process SCHED_OTHER; returns policy and priority that each had."""
    had = {}
    for folder in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            tid = int(folder.name)
            policy = os.sched_getscheduler(tid)
            if policy != os.SCHED_OTHER:
                had[tid] = policy, os.sched_getparam(tid).sched_priority
                os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))
    return had


def promote(had: Mapping[int, tuple[int, int]]) -> None:
    """Undo ``demote``."""
    limit_real_time()
    for tid, (policy, priority) in had.items():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(tid, policy, os.sched_param(priority))


def rest_collector() -> None:
    """Move what start-up made out of the garbage collector's sight and let it look rarely.

    The loop makes no cycles; a full collection would hold the interpreter for milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


def name_thread(name: str) -> None:
    """Name the calling thread, as ``top -H`` shows it; 15 characters are kept."""
    with contextlib.suppress(OSError):
        Path("/proc/thread-self/comm").write_text(name)


def set_fifo(priority: int) -> bool:
    """Give the calling thread, and those that it starts, SCHED_FIFO. False if it is denied."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError:
        return False
    return True


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class TimerFd:
    """A timer on CLOCK_MONOTONIC that makes a descriptor readable at an absolute instant (``timerfd``)."""

    def __init__(self) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self.fd = _check(_libc.timerfd_create(time.CLOCK_MONOTONIC, flags))
        self._value = _Itimerspec()

    def set(self, instant_ns: int) -> None:
        """Ring at ``instant_ns``; at once if that is past. Replaces an earlier setting."""
        self._value.it_value.tv_sec, self._value.it_value.tv_nsec = divmod(max(1, instant_ns), 1_000_000_000)
        _check(_libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, ctypes.byref(self._value), None))

    def clear(self) -> None:
        """Do not ring."""
        self._value.it_value.tv_sec = self._value.it_value.tv_nsec = 0
        _check(_libc.timerfd_settime(self.fd, 0, ctypes.byref(self._value), None))

    def rang(self) -> bool:
        """Whether it rang since it was last asked or set."""
        try:
            return len(os.read(self.fd, 8)) == 8
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)


def lock_memory() -> None:
    """Keep this process's pages in memory from now on, each once it was touched. Raises OSError if denied."""
    _check(_libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
