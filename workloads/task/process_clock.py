"""When this process began and how long it was kept from running, as the kernel tells it.

A job's run time counts from its first process, not from the first line of Python, so both
applications ask here how old they are. Source: proc(5), fields 22 (``starttime``) of
``/proc/PID/stat`` and 2 (time on a run queue) of ``/proc/PID/schedstat``.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from foundation.process_stat import START_TICKS, split_stat


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """The instant at which the kernel made this process.

    Attributes
    ----------
    monotonic_s
        On CLOCK_MONOTONIC, in seconds.
    epoch_ms
        On the wall clock, in milliseconds since 1970.
    """

    monotonic_s: float
    epoch_ms: int


def age_from_stat(stat: bytes, ticks_per_s: int, boottime_s: float) -> float:
    """Return a process's age in seconds at ``boottime_s`` (CLOCK_BOOTTIME).

    The kernel rounds the start down to a tick. It is rounded up here, so that the age is at most
    one tick short and never long: a period that counts from it is never cut.

    Raises
    ------
    ValueError
        ``stat`` is not a line of ``/proc/PID/stat``.
    """
    _, fields = split_stat(stat)
    return max(0.0, boottime_s - (int(fields[START_TICKS]) + 1) / ticks_per_s)


def process_start() -> ProcessStart:
    """Return when this process was made; now, where ``/proc`` does not tell."""
    monotonic_s, epoch_s = time.monotonic(), time.time()
    try:
        age_s = age_from_stat(
            Path("/proc/self/stat").read_bytes(),
            os.sysconf("SC_CLK_TCK"),
            time.clock_gettime(time.CLOCK_BOOTTIME),
        )
    except (OSError, ValueError):
        age_s = 0.0
    return ProcessStart(monotonic_s - age_s, round((epoch_s - age_s) * 1000))


def run_queue_delay_s() -> float:
    """Return how long the main thread has waited for a core while it could have run.

    In seconds since the process began; 0 where the kernel keeps no scheduling statistics.
    """
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
