"""The cgroups that Slurm makes for an embedded cluster's nodes: thawed and removed on the way down."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")


def cluster_cgroups(letters: str, root: Path = CGROUP_ROOT) -> list[Path]:
    """Return the top cgroups of every node of the cluster with these letters."""
    node = f"{letters}-n*"
    patterns = (
        f"*/slurm_{node}",
        f"*/gangd_{node}_job_*",  # in which agents let jobs yield
        f"system.slice/{node}_slurmstepd.scope",
        f"{node}_slurmstepd.scope",
    )
    return [path for pattern in patterns for path in root.glob(pattern) if path.is_dir()]


def thaw_all(tops: Iterable[Path]) -> None:
    """Thaw every cgroup below, so that the processes in them can die."""
    for top in tops:
        for below in [top, *(path for path in top.rglob("*") if path.is_dir())]:
            for control, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                with suppress(OSError):
                    if (below / control).exists():
                        (below / control).write_text(word)


def remove_all(tops: Iterable[Path], within_s: float) -> list[Path]:
    """Remove cgroups from the leaves up; returns those still there after ``within_s`` seconds."""
    left = list(tops)
    deadline = time.monotonic() + within_s
    while left:
        for top in left:
            below = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
            for path in [*below, top]:
                with suppress(OSError):
                    path.rmdir()
        left = [top for top in left if top.exists()]
        if left and time.monotonic() > deadline:
            break
        if left:
            time.sleep(0.02)
    return left
