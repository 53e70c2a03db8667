"""Entry of the guardian process; the agent starts it with two inherited descriptors (``spawn``).

It forks once more, so that it is nobody's child and in a session of its own: a signal to the agent's
process group, or the end of its terminal, does not reach it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from gangd.freezer.procfs import read_stat
from gangd.guardian.guardian_watch import End, watch
from gangd.guardian.place import discard
from gangd.guardian.revive import Revived
from gangd.guardian.statefile import StateFile, Word

PRIORITY = 20
"""SCHED_FIFO priority: above the agent's, so that a runaway agent does not hold it up."""


def run(state_fd: int, pipe_fd: int, ready_fd: int, agent_pid: int) -> None:
    """Detach, say that we are there, watch, and exit. Never returns."""
    os.setsid()
    if os.fork():
        os._exit(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("gang-guardian")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
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
    if end is End.AGENT_DIED and not any(state.held()):
        discard(Path(f"/proc/self/fd/{state_fd}").readlink(), state_fd)
    os._exit(0)


def _pidfd(pid: int) -> int | None:
    """Pidfd of the agent; None if the kernel has none. A dead agent shows in the pipe."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def _favour() -> None:
    """Ask for what makes a late reaction unlikely; each may be denied, and then we go without."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-1000")


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
