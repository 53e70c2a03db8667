"""Whether processes are frozen, read from the kernel and not from gangd, whichever way they were frozen."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from deploy.local.down import CGROUP_ROOT
from tests.fixtures.leftovers import node_cgroups

V1 = CGROUP_ROOT / "freezer"
V2 = (CGROUP_ROOT / "unified", CGROUP_ROOT)


def is_frozen(pid: int) -> bool:
    """Whether a process is frozen (cgroup v1, v2) or stopped; False for one that has ended."""
    with suppress(OSError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if stat[0] in "Tt":
            return True
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if controllers == "freezer":
                if (V1 / path.lstrip("/") / "freezer.state").read_text().strip() == "FROZEN":
                    return True
            elif number == "0" and any(_is_frozen2(root / path.lstrip("/")) for root in V2):
                return True
    return False


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time that processes have used, seconds; those that have ended count nothing."""
    total = 0.0
    for pid in pids:
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
    return total


def processes_of(job: int, node: str) -> list[int]:
    """Processes of a job on one of the cluster's nodes, found by the environment that Slurm gave them."""
    marks = {f"SLURM_JOB_ID={job}".encode(), f"SLURMD_NODENAME={node}".encode()}
    found = []
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):  # noqa: PTH208  (often)
        with suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            mine = all(mark in environment for mark in marks) and marks <= set(environment.split(b"\0"))
            if mine and Path(f"/proc/{pid}/comm").read_bytes() != b"slurmstepd\n":
                found.append(pid)
    return found


def frozen_cgroups(nodes: Iterable[str]) -> list[Path]:
    """Every cgroup of Slurm's nodes that is frozen or freezing."""
    found = []
    for top in node_cgroups(nodes):
        for path in [top, *(path for path in top.rglob("*") if path.is_dir())]:
            with suppress(OSError):
                if (path / "freezer.state").read_text().strip() != "THAWED":
                    found.append(path)
            if _is_frozen2(path):
                found.append(path)
    return found


def _is_frozen2(path: Path) -> bool:
    with suppress(OSError):
        return "frozen 1" in (path / "cgroup.events").read_text()
    return False
