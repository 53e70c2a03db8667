"""What is to be known of this host: its description, and which threads share a core."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

import psutil

from foundation.id_list import read_ids
from predictor.dataset import MeasuredHost

CPUS = Path("/sys/devices/system/cpu")
MOST_CPUS = 65_536


def describe_host() -> MeasuredHost:
    """Return this host's description."""
    first = min(os.sched_getaffinity(0))
    return MeasuredHost(
        name=socket.gethostname().split(".")[0],
        cpu_model=cpu_model(),
        cpus=os.cpu_count() or 1,
        threads_per_core=len(siblings(first)),
        l2_kib=_cache_kib(first, 2),
        l3_kib=_cache_kib(first, 3),
        memory_mib=psutil.virtual_memory().total >> 20,
        kernel=platform.release(),
    )


def siblings(cpu: int, cpus: Path = CPUS) -> list[int]:
    """Return the hardware threads of a CPU's core, itself included."""
    try:
        text = (cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        return sorted({cpu, *read_ids(text.strip(), MOST_CPUS)})
    except (OSError, ValueError):
        return [cpu]


def thread_siblings() -> tuple[int, int] | None:
    """Return two hardware threads of one core that this process may use; None where there are none."""
    allowed = os.sched_getaffinity(0)
    for cpu in sorted(allowed):
        both = [other for other in siblings(cpu) if other in allowed]
        if len(both) > 1:
            return both[0], both[1]
    return None


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return what this host calls its processor, or its architecture where it does not say."""
    try:
        for line in cpuinfo.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in {"model name", "cpu model", "Hardware"}:
                return " ".join(value.split())
    except OSError:
        pass
    return platform.machine()


def _cache_kib(cpu: int, level: int, cpus: Path = CPUS) -> int | None:
    for index in sorted((cpus / f"cpu{cpu}" / "cache").glob("index*")):
        try:
            if int((index / "level").read_text()) == level:
                size = (index / "size").read_text().strip()
                return int(size[:-1]) * {"K": 1, "M": 1024}[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return None
