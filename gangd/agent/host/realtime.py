"""Being on time on a host whose cores are all busy: priority, memory that stays, a collector that rests.

All threads of the agent get SCHED_FIFO, the switch thread the highest: they share one interpreter lock, and
a waiting switch thread must not depend on an ordinary thread that a job has pushed off its core. The agent
uses well under 1% of a core. Should it ever run away, RLIMIT_RTTIME ends it, and the guardian thaws.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from gangd.agent.host.linux_calls import lock_memory

LOOP_PRIORITY = 10
SWITCH_PRIORITY = 12
_INTERPRETER_TURN_S = 0.0005
_STACK_BYTES = 512 * 1024
_RUNAWAY_US = 500_000


@dataclass(frozen=True, slots=True)
class Standing:
    """What the host granted."""

    fifo: bool
    memory_locked: bool
    spared_by_oom: bool

    def as_fields(self) -> dict[str, bool]:
        """Return it for the log."""
        return {
            "sched_fifo": self.fifo,
            "memory_locked": self.memory_locked,
            "oom_spared": self.spared_by_oom,
        }


def prepare_process(*, wanted: bool = True) -> Standing:
    """Set up the calling process before it makes threads; what the host denies, it goes without."""
    sys.setswitchinterval(_INTERPRETER_TURN_S)
    threading.stack_size(_STACK_BYTES)
    fifo = wanted and set_fifo(LOOP_PRIORITY)
    locked = spared = False
    if fifo:
        _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        resource.setrlimit(resource.RLIMIT_RTTIME, (_RUNAWAY_US, hard))
    if wanted:
        with contextlib.suppress(OSError):
            lock_memory()
            locked = True
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("-900")
            spared = True
    return Standing(fifo, locked, spared)


def rest_collector() -> None:
    """Move what start-up made out of the garbage collector's sight and let it look rarely.

    The loop makes no cycles; a full collection would hold the interpreter for milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)


def name_thread(name: str) -> None:
    """Name the calling thread for whoever looks at threads (``top -H``); 15 characters are kept."""
    with contextlib.suppress(OSError):
        Path("/proc/thread-self/comm").write_text(name)


def set_fifo(priority: int) -> bool:
    """Give the calling thread, and those that it starts, SCHED_FIFO. False if it is denied."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError:
        return False
    return True
