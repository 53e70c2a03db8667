"""Entry of the guardian process; the agent starts it with two inherited descriptors (``spawn``).

It forks once more, so that it is a child of init and in a session of its own: a signal to the agent's
process group, or the end of its terminal, does not reach it.

It has SCHED_DEADLINE where the kernel grants it, so that no thread of real-time priority holds it up
(sched(7); Documentation/scheduler/sched-deadline.rst), else the highest real-time priority.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import select
import signal
import struct
import sys
import time
from pathlib import Path

from foundation.files import draft_at
from foundation.process_stat import STATE, split_stat
from gangd.freezer.procfs import read_stat
from gangd.guardian.guardian_watch import Revived, WatchEnd, watch
from gangd.guardian.state_folders import discard
from gangd.guardian.statefile import StateFile, Word

PRIORITY = 99
"""SCHED_FIFO priority without SCHED_DEADLINE."""
_RUNTIME_NS, _PERIOD_NS = 4_000_000, 40_000_000
_SCHED_DEADLINE = 6
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274, "ppc64le": 355, "s390x": 345}
_PIDFD_GET_INFO, _PIDFD_INFO_EXIT, _PIDFD_INFO = 0xC040FF0B, 1 << 3, struct.Struct("=QQ11Ii")
_END_WAIT_S = 5.0


def run(state_fd: int, pipe_fd: int, ready_fd: int, agent_pid: int) -> None:
    """Detach, say that we are there, watch, and exit. Never returns."""
    os.setsid()
    if os.fork():
        os._exit(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("gang-guardian")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)  # it leaves when the agent does, not before
    _favour()
    state = StateFile(state_fd, None)
    pidfd = _pidfd(agent_pid)
    me = read_stat(os.getpid())
    state.set_word(Word.GUARDIAN_START, 0 if me is None else me.start_ticks)
    state.set_word(Word.GUARDIAN_BEAT_NS, time.monotonic_ns())
    state.set_word(Word.GUARDIAN_PID, os.getpid())
    os.write(ready_fd, b"r")
    os.close(ready_fd)
    end = watch(state, pidfd, pipe_fd, _say)
    _record(state, end, exit_status(agent_pid, pidfd))
    if end is WatchEnd.AGENT_DIED and not any(state.held()):
        discard(Path(f"/proc/self/fd/{state_fd}").readlink(), state_fd)
    os._exit(0)


def _pidfd(pid: int) -> int | None:
    """Pidfd of the agent; None if the kernel has none. A dead agent shows in the pipe."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def exit_status(pid: int, pidfd: int | None, wait_s: float = _END_WAIT_S) -> int | None:
    """Wait status of a process that ends and is no child; None where the kernel does not disclose it.

    From ``PIDFD_GET_INFO`` (Linux 6.15) once its parent has waited for it, until then from
    ``/proc/<pid>/stat`` (field 52).
    """
    poller = select.poll()
    if pidfd is not None:
        poller.register(pidfd, select.POLLIN)
    if pidfd is None or not poller.poll(1000 * wait_s):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(2):  # its parent may wait for it between the two looks
        info = ctypes.create_string_buffer(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0, *[0] * 12), _PIDFD_INFO.size)
        if libc.ioctl(pidfd, ctypes.c_ulong(_PIDFD_GET_INFO), info) == 0:
            mask, *_, status = _PIDFD_INFO.unpack(info.raw)
            if mask & _PIDFD_INFO_EXIT:
                return int(status)
        with contextlib.suppress(OSError, ValueError, IndexError):
            _, fields = split_stat(Path(f"/proc/{pid}/stat").read_bytes())
            if fields[STATE] in b"ZX":
                return int(fields[-1])
    return None


def _record(state: StateFile, end: WatchEnd, status: int | None) -> None:
    """Record how the agent ended: in its file, and on standard error if it did not take leave."""
    number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
    line = {
        "time_s": round(time.time(), 6),
        "who": "guardian",
        "event": "agent ended",
        "node": state.node(),
        "pid": state.word(Word.AGENT_PID),
        "end": end.value,
        "status": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
        "signal": next((one.name for one in signal.Signals if one == number), number),
    }
    raw = (json.dumps(line) + "\n").encode()
    if end is not WatchEnd.FAREWELL:
        with contextlib.suppress(OSError):
            os.write(2, raw)
    path = state.ended_path()
    if path is not None:
        with contextlib.suppress(OSError), draft_at(path, draft=f".{path.name}.{os.getpid()}") as fresh:
            fresh.write_bytes(raw)


def _favour() -> None:
    """Ask for what makes a late reaction unlikely; each may be denied, and then we go without."""
    if not set_deadline():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-1000")


def set_deadline() -> bool:
    """Give the calling thread SCHED_DEADLINE: 4 ms of each 40 ms, before all real-time priorities."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None:
        return False
    times_ns = _RUNTIME_NS, _PERIOD_NS, _PERIOD_NS
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, _SCHED_DEADLINE, 0, 0, 0, *times_ns)
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(ctypes.c_long(number), 0, attributes, 0) == 0)


def _say(event: str, revived: Revived) -> None:
    """Write one JSON line to the inherited standard error; a closed one is no reason to die."""
    line = {
        "time_s": round(time.time(), 6),
        "who": "guardian",
        "event": event,
        "thawed_jobs": sorted(revived.jobs),
        "gone": revived.gone,
        "failures": revived.failures,
    }
    with contextlib.suppress(OSError):
        os.write(2, (json.dumps(line) + "\n").encode())


if __name__ == "__main__":
    run(*(int(word) for word in sys.argv[1:5]))
